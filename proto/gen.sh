#!/bin/sh
# Generates gen/ from proto/, from nothing each time, so that a removed proto leaves no stub behind.
#   proto/gen.sh        writes gen/
#   proto/gen.sh check  fails with the difference where gen/ is not what proto/ gives; writes nothing
#   proto/gen.sh deps   only brings the imported google/api protos, which buf lint and buf breaking need too
#   proto/gen.sh baseline  writes proto/baseline.binpb: the contract as it is from now on promised (at a release, never to silence buf breaking)
# Needs the development dependencies (buf, grpcio-tools, mypy-protobuf, protoc-gen-connectrpc) on the PATH, and for the OpenAPI document those of the suite;
# no network.
set -eu
cd "$(dirname "$0")/.."
mode=${1:-write}

# The imports come from the wheel whose generated modules are used at run time, so that the two cannot differ.
source_dir=$(python -c 'import google.api; print(next(iter(google.api.__path__)))')
mkdir -p .buf-deps/google/api
cp "$source_dir/annotations.proto" "$source_dir/http.proto" .buf-deps/google/api/
if [ "$mode" = deps ]; then exit 0; fi
if [ "$mode" = baseline ]; then exec buf build proto --exclude-source-info -o proto/baseline.binpb; fi

# Into a folder aside, so that a failing generator leaves gen/ whole.
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/gen"
buf generate --output "$out"
services=$(cd proto && find ductor -name '*_service.proto' | LC_ALL=C sort)
# shellcheck disable=SC2086  # one argument per file is meant
python -m grpc_tools.protoc --proto_path=proto --proto_path=.buf-deps --grpc_python_out="$out/gen" $services

# protoc-gen-mypy_grpc also describes the gRPC modules of files without a service, which do not exist.
find "$out/gen" -name '*_pb2_grpc.pyi' | while read -r stub; do
  [ -e "${stub%i}" ] || rm "$stub"
done

# hatchling and mypy want packages; the generators write only modules.
find "$out/gen/ductor" -type d | while read -r package; do
  printf '"""Generated from proto/ by proto/gen.sh; never edited."""\n' > "$package/__init__.py"
done
touch "$out/gen/ductor/py.typed"

# The document of the REST side, from the modules just made and the comments, which they do not have.
buf build proto --output "$out/image.binpb"
version=$(python -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
PYTHONPATH="$out/gen:services" python -m ductord.gateway.openapi "$out/image.binpb" "$version" > "$out/gen/ductor/workflow/v1/openapi.json"

if [ "$mode" = check ]; then
  diff -r -x __pycache__ gen "$out/gen" || { echo "gen/ is not what proto/ gives: run proto/gen.sh and commit gen/" >&2; exit 1; }
else
  rm -rf gen
  cp -R "$out/gen" gen
fi
