// What the programs that carry messages share. It needs nothing, so that they can be modules with dependencies of their own.
module micronode/bench/peers/loopclient

go 1.26.0
