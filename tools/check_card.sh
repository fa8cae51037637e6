#!/usr/bin/env bash
# Run all checks of a card. Each step prints one line; its full log is in FOLDER.
#   tools/check_card.sh FOLDER [STEP ...]
# Steps (default: all):
#   cases       every op test case with every algorithm; compiles the kernels of later steps
#   tests       the tests marked `cuda`; those that read the card's free memory run alone, last
#   sanitizers  tools/sanitize_cuda.sh
#   golden      golden cases with the algorithms that the autotuner chooses
#   eager       the small golden cases without CUDA graphs
#   naive       the small golden cases without passes
#   forced      the small golden cases with one or two algorithms of each family
#   precision   tools/check_precision.py
#   soak        tools/soak_cuda.py
# Golden cases, trained networks and pictures are in $SHARED (default: ../shared).
set -uo pipefail

folder=${1:?"expected a folder for logs"}
shift
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2

export ENGINE_TUNE=${ENGINE_TUNE:-10} # networks are tuned before they run
shared=${SHARED:-../shared}
python=${PYTHON:-python3}
jobs=${JOBS:-8}
steps=("$@")
[ $# -gt 0 ] || steps=(cases tests sanitizers golden eager naive forced precision soak)
status=0

run() { # NAME COMMAND...
  local name=$1 begin=$SECONDS code
  shift
  "$@" >"$folder/$name.log" 2>&1 </dev/null
  code=$?
  printf '%-16s exit %d, %4d s  %s\n' \
    "$name" "$code" $((SECONDS - begin)) "$(tail -n 1 "$folder/$name.log")"
  return "$code"
}
golden() { # NAME SUITE VARIABLES...
  if [ ! -f "$shared/golden/check.py" ]; then
    printf '%-16s skipped: no %s\n' "$1" "$shared/golden"
    return
  fi
  run "$1" env ENGINE_GOLDEN_DEVICE=cuda "${@:3}" "$python" "$shared/golden/check.py" \
    tests/golden_adapter.py --root "$shared/golden/open" --suite "$2" --optional
}
card_tests() { ENGINE_REQUIRE_CUDA=1 "$python" -m pytest -q -m cuda "$@"; }
algorithms_of_families() { # one or two names for each family
  "$python" - <<'END'
from engine.backends.cuda import conv

families = {}
for name, algorithm in conv.ALGORITHMS.items():
    families.setdefault(algorithm.family, []).append(name)
for names in families.values():
    print(*sorted({names[0], names[len(names) // 2]}), sep="\n")
END
}
forced() {
  local name names job pending=() code=0
  mapfile -t names < <(algorithms_of_families)
  for name in "${names[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    golden "by_$name" micro "ENGINE_GOLDEN_ALGORITHM=$name" &
    pending+=($!)
  done
  for job in "${pending[@]}"; do wait "$job" || code=1; done
  return "$code"
}
tests() {
  run tests card_tests -n "$jobs" --deselect tests/backends/cuda/test_real_device.py
  local code=$?
  run alone card_tests tests/backends/cuda/test_real_device.py && return "$code"
}
all_golden() { # small cases and whole networks
  golden golden_micro micro
  local code=$?
  golden golden_macro macro && return "$code"
}

for step in "${steps[@]}"; do
  case $step in
    cases)
      run cases "$python" tools/run_op_cases_cuda.py \
        --algorithms --precisions float32,float16,tf32,int8
      ;;
    tests) tests ;;
    sanitizers) run sanitizers tools/sanitize_cuda.sh ;;
    golden) all_golden ;;
    eager) golden eager micro ENGINE_GOLDEN_GRAPH=0 ;;
    naive) golden naive micro ENGINE_GOLDEN_PASSES=0 ;;
    forced) forced ;;
    precision)
      run precision "$python" tools/check_precision.py \
        --shared "$shared" --draws 16 --json "$folder/precision.json"
      ;;
    soak) run soak "$python" tools/soak_cuda.py --json "$folder/soak.json" ;;
    *)
      echo "$step: no such step. Try: sed -n 2,14p tools/check_card.sh" >&2
      exit 2
      ;;
  esac || status=1
done
exit "$status"
