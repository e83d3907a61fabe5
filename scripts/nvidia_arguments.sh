# Arguments as NVIDIA's scripts of the same names take them: positional, all optional. Sourced by run_squad and run_glue.

explain() { sed -nE '2,/^set/{/^#/s/^# ?//p;}' "$0"; }
fail() { echo "$(basename "$0"): error: $1; see scripts/$(basename "$0") --help" >&2 && exit 2; }

# read_arguments MOST "$@": `values` has the positional arguments, at most so many, and `rest` what follows --.
read_arguments() {
  local most=$1
  shift
  values=() rest=()
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) explain && exit ;;
      --dry-run) DRY_RUN=1 ;;
      --) shift && rest=("$@") && break ;;
      -*) fail "$1: is no option" ;;
      *) values+=("$1") ;;
    esac
    shift
  done
  [ ${#values[@]} -le "$most" ] || fail "${#values[@]} arguments, expected at most $most"
}

# need_whole NAME...: these variables must be whole numbers, at least 1. need_number NAME...: numbers of any kind.
need_whole() {
  local name
  for name in "$@"; do
    [[ ${!name} =~ ^[0-9]{1,9}$ ]] || fail "$name ${!name}: must be a whole number"
    printf -v "$name" %d "$((10#${!name}))" # 08 is 8, and no octal number
    [ "${!name}" -ge 1 ] || fail "$name ${!name}: must be at least 1"
  done
}
need_number() {
  local name
  for name in "$@"; do
    [[ ${!name} =~ ^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$ ]] || fail "$name ${!name}: must be a number, such as 5e-6"
  done
}

# translate: `amp`, `xla`, `model` and `rate` for the trainer, of `precision`, `use_xla`, `bert_model`, `learning_rate`, `num_gpus`.
translate() {
  case $precision in
    fp16 | manual_fp16) amp=fp16 ;;
    fp32 | tf32) amp=off ;;
    bf16) amp=bf16 ;;
    *) fail "precision $precision: must be fp16, manual_fp16, fp32, tf32 or bf16" ;;
  esac
  case $use_xla in true) xla=on ;; false) xla=off ;; *) fail "use_xla $use_xla: must be true or false" ;; esac
  case $bert_model in
    large) model=google-bert/bert-large-uncased ;;
    base) model=google-bert/bert-base-uncased ;;
    *) fail "bert_model $bert_model: must be large or base" ;;
  esac
  # The learning rate is per GPU there, and that of the global batch here.
  rate=$(LC_ALL=C awk -v rate="$learning_rate" -v gpus="$num_gpus" 'BEGIN { printf "%.10g", rate * gpus }')
}

# find_trainer_python: `python`, which is $PYTHON, or what quickstart made unless another environment is active.
find_trainer_python() {
  local made
  made="$(dirname "$0")/../.venv/bin/python"
  [ -z "${VIRTUAL_ENV:-}" ] && [ -x "$made" ] || made=$(command -v python >/dev/null && echo python || echo python3)
  python=${PYTHON:-$made}
}

# run COMMAND...: print it as a shell reads it again, and run it unless it is a dry run.
run() {
  echo "$(printf '%q ' "$@" | sed -e 's/\\,/,/g' -e 's/ $//')"
  [ "${DRY_RUN:-0}" != 0 ] || "$@"
}
