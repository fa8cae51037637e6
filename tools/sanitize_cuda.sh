#!/usr/bin/env bash
# compute-sanitizer's four tools over every case of the ops' tests; one line each, 0 errors wanted.
#   tools/sanitize_cuda.sh [TOOL ...] [-- OPTIONS OF every_case_cuda.py]
set -uo pipefail
cd "$(dirname "$0")/.."

tools=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do tools+=("$1"); shift; done
[ $# -gt 0 ] && shift
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)

python=${PYTHON:-python3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export ENGINE_TUNE=0
"$python" tools/every_case_cuda.py "$@" || exit 1 # compiles the kernels, without a watcher

status=0
for tool in "${tools[@]}"; do
  begin=$SECONDS
  timeout "${SANITIZE_SECONDS:-120}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
    --target-processes application-only "$python" tools/every_case_cuda.py "$@" >"$log" 2>&1
  code=$?
  printf '%-10s exit %d, %3d s: %s\n' "$tool" "$code" $((SECONDS - begin)) \
    "$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1)"
  if [ "$code" != 0 ]; then
    status=1
    grep -E '^=========' "$log" | head -25
  fi
done
exit "$status"
