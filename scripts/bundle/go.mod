module github.com/coracle-dev/coracle/scripts/bundle

go 1.26.0
