// What the programs that send letters share. It needs nothing, so that they can be modules with dependencies of their own.
module micronode/bench/peers/talk

go 1.26.0
