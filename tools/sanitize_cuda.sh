#!/usr/bin/env bash
# Run every op test case under the four tools of compute-sanitizer and expect 0 errors.
# Each tool must first find a planted fault, to show that its 0 means something.
#   tools/sanitize_cuda.sh [TOOL ...] [-- OPTIONS OF run_op_cases_cuda.py]
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

watch() { # TOOL OPTIONS...: run the cases under a tool; exit status 9 if it finds an error
  timeout "${SANITIZE_SECONDS:-120}" compute-sanitizer --tool "$1" --error-exitcode 9 \
    --target-processes application-only "$python" tools/run_op_cases_cuda.py "${@:2}" >"$log" 2>&1
}
cases() { grep -Eo '^[0-9]+ cases' "$1" | tail -1; }
summary() { grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1; }

"$python" tools/run_op_cases_cuda.py "$@" | tee "$log" || exit 1 # compile the kernels without a sanitizer
expected=$(cases "$log")

status=0
for tool in "${tools[@]}"; do
  watch "$tool" --fault "$tool"
  code=$?
  found=$(summary)
  begin=$SECONDS
  if [ "$code" = 9 ]; then
    printf '%-10s finds a planted fault: %s\n' "$tool" "$found"
  else
    printf '%-10s exit %d: MISSES A PLANTED FAULT: %s\n' "$tool" "$code" "$found"
    status=1
  fi
  watch "$tool" "$@"
  code=$?
  watched=$(cases "$log")
  printf '%-10s exit %d, %3d s, %s of %s: %s\n' "$tool" "$code" $((SECONDS - begin)) \
    "${watched:-no cases}" "$expected" "$(summary)"
  if [ "$code" != 0 ] || [ "$watched" != "$expected" ]; then
    status=1
    grep -E '^=========' "$log" | head -25
  fi
done
exit "$status"
