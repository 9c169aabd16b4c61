# What the tour and the worker share: one call over gRPC, and its answer as JSON on standard output.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$here/bin:$PATH
headers=()
[ -z "${DUCTOR_TENANT_ID:-}" ] || headers+=(-H "x-tenant-id: $DUCTOR_TENANT_ID")
# grpcurl reads the key from the environment by itself: on its command line everybody on the machine would see it.
[ -z "${DUCTOR_API_KEY:-}" ] || headers+=(-expand-headers -H 'authorization: Bearer ${DUCTOR_API_KEY}')

# call SERVICE/METHOD [OPTION…] < REQUEST. Exit code: 0, or 64 + the number of the gRPC code. With exec=exec the process becomes grpcurl: to be killed.
call() {
  local method=$1
  shift
  ${exec:-} grpcurl -plaintext "${headers[@]}" "$@" -d @ "$DUCTOR_TARGET" "ductor.workflow.v1.$method"
}
