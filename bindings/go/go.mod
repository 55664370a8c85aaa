module evener.dev/go

go 1.19
