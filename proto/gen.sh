#!/bin/sh
# Generates gen/ from proto/, from nothing each time, so that a removed proto leaves no stub behind.
#   proto/gen.sh        everything
#   proto/gen.sh deps   only the imported google/api protos, which buf lint and buf breaking need too
# Needs the development dependencies (buf, grpcio-tools, mypy-protobuf, protoc-gen-connectrpc) on the PATH; no network.
set -eu
cd "$(dirname "$0")/.."

# The imports come from the wheel whose generated modules are used at run time, so that the two cannot differ.
source_dir=$(python -c 'import google.api; print(next(iter(google.api.__path__)))')
mkdir -p .buf-deps/google/api
cp "$source_dir/annotations.proto" "$source_dir/http.proto" .buf-deps/google/api/
if [ "${1:-}" = deps ]; then exit 0; fi

rm -rf gen
mkdir -p gen
buf generate
python -m grpc_tools.protoc --proto_path=proto --proto_path=.buf-deps --grpc_python_out=gen $(cd proto && find . -name '*_service.proto' | sed 's|^\./||' | sort)

# The stub generator also describes the gRPC modules of files without a service, which do not exist.
for stub in $(find gen -name '*_pb2_grpc.pyi'); do
  [ -e "${stub%i}" ] || rm "$stub"
done

# hatchling and mypy want packages; the generators write only modules.
for package in gen/ductor gen/ductor/workflow gen/ductor/workflow/v1; do
  printf '"""Generated from proto/ by proto/gen.sh; never edited."""\n' > "$package/__init__.py"
done
touch gen/ductor/py.typed
