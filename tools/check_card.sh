#!/usr/bin/env bash
# Everything that must hold on a card, step by step: a line for each, and its whole log in FOLDER.
#   tools/check_card.sh FOLDER [STEP ...]
# Steps, all of them unless some are named:
#   cases       every case of the ops' tests by every algorithm; compiles what others need
#   tests       those marked `cuda`; what looks at the card's free memory runs alone, behind them
#   sanitizers  tools/sanitize_cuda.sh
#   golden      darknet's cases by what the tuner chooses
#   eager       the small ones without graphs;   naive   without passes
#   forced      the small ones by one algorithm of each kind wherever it can
#   precision   tools/check_precision.py
#   soak        tools/soak_cuda.py
# Golden cases, trained networks and pictures are those of ../shared (SHARED says otherwise).
set -uo pipefail

folder=${1:?"expected a folder for logs"}
shift
mkdir -p "$folder" || exit 2
folder=$(cd "$folder" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2

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
    printf '%-16s left out: no %s\n' "$1" "$shared/golden"
    return
  fi
  run "$1" env ENGINE_GOLDEN_DEVICE=cuda "${@:3}" "$python" "$shared/golden/check.py" \
    tests/golden_adapter.py --root "$shared/golden/open" --suite "$2" --optional
}
card_tests() { ENGINE_REQUIRE_CUDA=1 "$python" -m pytest -q -m cuda "$@"; }
of_each_kind() { # algorithm: its name, or two of its variants
  "$python" - <<'END'
from engine.backends.cuda import conv

kinds = {}
for name in conv.ALGORITHMS:
    kinds.setdefault(conv.family(conv.Choice(name)) or name, []).append(name)
for names in kinds.values():
    print(*sorted({names[0], names[len(names) // 2]}), sep="\n")
END
}
forced() {
  local name names job under_way=() code=0
  mapfile -t names < <(of_each_kind)
  for name in "${names[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    golden "by_$name" micro "ENGINE_GOLDEN_ALGORITHM=$name" &
    under_way+=($!)
  done
  for job in "${under_way[@]}"; do wait "$job" || code=1; done
  return "$code"
}
tests() {
  run tests card_tests -n "$jobs" --deselect tests/backends/cuda/test_real_device.py
  local code=$?
  run alone card_tests tests/backends/cuda/test_real_device.py && return "$code"
}
whole() { # golden cases, small ones and networks
  golden golden_micro micro
  local code=$?
  golden golden_macro macro && return "$code"
}

for step in "${steps[@]}"; do
  case $step in
    cases)
      run cases "$python" tools/every_case_cuda.py \
        --algorithms --precisions float32,float16,tf32
      ;;
    tests) tests ;;
    sanitizers) run sanitizers tools/sanitize_cuda.sh ;;
    golden) whole ;;
    eager) golden eager micro ENGINE_GOLDEN_GRAPH=0 ;;
    naive) golden naive micro ENGINE_GOLDEN_PASSES=0 ;;
    forced) forced ;;
    precision)
      run precision "$python" tools/check_precision.py \
        --shared "$shared" --json "$folder/precision.json"
      ;;
    soak) run soak "$python" tools/soak_cuda.py --json "$folder/soak.json" ;;
    *)
      echo "$step: no such step. Try: sed -n 2,14p tools/check_card.sh" >&2
      exit 2
      ;;
  esac || status=1
done
exit "$status"
