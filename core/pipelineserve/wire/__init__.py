"""The gRPC contracts, and their stubs, which `make generate` writes from the .proto files."""
