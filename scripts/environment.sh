# Find a Python and make an environment with it. Sourced by the other scripts; needs only bash and Python.
#
# An environment holds bertprep itself, editable, with some of its extras, every version pinned by a file in constraints/.
# It is made once and then left alone, until pyproject.toml, the constraints, the Python or the path of the checkout change.

unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE # an environment must see only its own packages, and keep them compiled

# answer_help "$@": print a script's own header where its first argument is --help, and end.
answer_help() {
  case ${1:-} in -h | --help) sed -nE '2,/^set/{/^#/s/^# ?//p;}' "$0" && exit 0 ;; esac
}

# find_python 3.12: print the path of a Python of that version that runs and can make environments, or fail.
# A name on PATH may be a shim that fails when it is run, so each candidate is run.
find_python() {
  local version=$1 candidate
  for candidate in \
    "python$version" python3 python \
    "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$version".*[0-9]/bin/python \
    "$(command -v uv >/dev/null && uv python find --no-project --no-python-downloads "$version" 2>/dev/null)"; do
    [ -n "$candidate" ] || continue
    "$candidate" - "$version" 2>/dev/null <<'PYTHON' && return
import sys, sysconfig
import ensurepip, venv  # Debian packs these apart from Python
right_version = "%d.%d" % sys.version_info[:2] == sys.argv[1]
has_wheels = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
if not (right_version and has_wheels):
    sys.exit(1)
import os
print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))  # not that of an environment that is active now
PYTHON
  done
  return 1
}

# find_first_python 3.12 3.11: print the path of the first version in the list that is installed, or fail.
find_first_python() {
  local version
  for version in "$@"; do
    find_python "$version" && return
  done
  echo "No usable Python here: bertprep needs one of $*, with its venv module (Debian: apt install python3-venv)." >&2
  return 1
}

# make_environment FOLDER PYTHON EXTRAS CONSTRAINTS: make or renew an environment; call it in the root of the checkout.
make_environment() {
  local folder=$1 python=$2 extras=$3 constraints=$4 made_for stamp wanted log start=$SECONDS
  made_for="$PWD $("$python" -VV) $python"
  if [ "$(cat "$folder/place" 2>/dev/null)" != "$made_for" ]; then
    rm -rf "$folder"
    "$python" -m venv "$folder" && echo "$made_for" >"$folder/place" || return 1
  fi
  stamp="$folder/installed${extras:+-$extras}" # the inputs of the last successful installation
  wanted=$(cat pyproject.toml "$constraints")
  [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || return 0
  log="$folder/install.log"
  echo "Installing ${extras:-bertprep alone} in $folder ($("$python" -V)), log in $log"
  rm -f "$stamp"
  # The build tools are installed first, with pinned versions, because pip would fetch the newest for a build of its own.
  # Python compiles modules when it first imports them: compiling all that is installed takes as long as unpacking it.
  if ! {
    "$folder/bin/python" -m pip install --no-compile -c "$constraints" hatchling editables &&
      "$folder/bin/python" -m pip install --no-compile -c "$constraints" --no-build-isolation -e ".${extras:+[$extras]}" &&
      "$folder/bin/python" -m pip check
  } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "Installing in $folder failed; the whole log is in $log" >&2
    return 1
  fi
  echo "$wanted" >"$stamp"
  echo "Installed in $folder in $((SECONDS - start)) s"
}
