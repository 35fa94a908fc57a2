module micronode/bench

go 1.26.0

require micronode v0.0.0

replace micronode => ../
