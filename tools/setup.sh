#!/usr/bin/env bash
# Makes .venv and installs the tested set into it; does nothing when that is done already.
# Follows no paper: it is the first half of every make target.
# Leaves out conda (environment.yml), GPUs and operating systems other than Linux.
#
# PYTHON=python3.12 names the Python to use. Whatever goes wrong is said as "error: ..." and "do: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly root=$PWD venv=.venv stamp=.venv/.specdec-ready unfinished=.venv/.specdec-unfinished
readonly log=build/setup/pip.log need_kib=$((3 * 1024 * 1024))

say() { printf '%s\n' "setup: $*"; }
fail() { # problem, what to do
    printf 'error: %s\ndo:    %s\n' "$1" "$2" >&2
    exit 1
}

# What .venv should hold, as one line: the two files it is made from, and this folder (its scripts hold the path).
wanted() { printf '%s %s\n' "$(cat requirements.txt pyproject.toml | cksum)" "$root"; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

find_python() { # sets `python`, or explains why there is none
    local candidates=(python3.11 python3.12 python3.13 python3) candidate version seen=""
    [ -n "${PYTHON:-}" ] && candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if ! command -v "$candidate" >/dev/null 2>&1; then
            [ -n "${PYTHON:-}" ] && seen+="       $candidate: not found"$'\n'
        elif ! version=$(version_of "$candidate"); then
            seen+="       $candidate: is there but does not run"$'\n'
        else
            case $version in
                3.11 | 3.12 | 3.13)
                    if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then
                        python=$candidate
                        return
                    fi
                    seen+="       $candidate: $version, but its venv module is missing (Debian, Ubuntu: apt install python$version-venv)"$'\n'
                    ;;
                2.* | 3.[0-9] | 3.10) seen+="       $candidate: $version, too old"$'\n' ;;
                *) seen+="       $candidate: $version, newer than what was tested"$'\n' ;;
            esac
        fi
    done
    fail "no usable Python: the course needs 3.11, 3.12 or 3.13 with its venv module"$'\n'"${seen:-       none of ${candidates[*]} is on the PATH}" \
        "install one of them, or name one that you have: make course PYTHON=/path/to/python3.12"
}

check_space() { # what .venv holds already counts towards what it needs
    local free held=0
    free=$(df -Pk . | awk 'NR == 2 { print $4 }')
    [ -d $venv ] && held=$(du -sk $venv | awk '{ print $1 }')
    if [ $((free + held)) -lt $need_kib ]; then
        fail "not enough disk space: $((free / 1024)) MiB free in $root, about $((need_kib / 1024)) MiB needed" \
            "make room there, or move this folder to a larger disk, and run the same command again"
    fi
}

explain_pip() { # reads pip's log and stops
    local again="then run the same command again; all that pip said is in $log"
    if grep -q 'No space left on device' $log; then
        fail "the disk filled up while pip was installing (a torch wheel with CUDA needs up to 10 GB)" \
            "make room for .venv, pip's cache and TMPDIR, or install a CPU build of torch into .venv first, $again"
    elif grep -qE 'NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|NameResolutionError|SSLError|Failed to establish a new connection|name resolution|Connection refused|Max retries exceeded' $log; then
        fail "pip reached no package registry" \
            "check the network, proxy and pip configuration (.venv/bin/python -m pip config list), $again"
    elif grep -q 'No matching distribution found' $log; then
        fail "pip found no release for this Python and machine: $(grep -o 'No matching distribution found for .*' $log | tail -1)" \
            "try another Python (make distclean; make course PYTHON=python3.11), $again"
    fi
    fail "pip failed: $(tail -1 $log)" "see $log, mend what it names, $again"
}

pip_install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input "$@" 2>&1 |
        { grep --line-buffered -v '^Requirement already satisfied' || true; } | tee -a $log
}

if [ -x $venv/bin/python ] && [ -f $stamp ] && [ "$(cat $stamp)" = "$(wanted)" ] && here=$(version_of $venv/bin/python); then
    if [ -n "${PYTHON:-}" ] && [ "$(version_of "$PYTHON" || echo none)" != "$here" ]; then
        fail ".venv was made with Python $here, and PYTHON=$PYTHON is another" \
            "leave PYTHON out to use .venv as it is, or run 'make distclean' first to make it anew"
    fi
    exit 0
fi

trap 'printf "\nsetup: interrupted; run the same command again and it starts where it can\n" >&2; exit 130' INT TERM
python=""
find_python
check_space

# A venv that an interruption left half made is made anew: pip's cache keeps what was downloaded.
if [ -e $venv ] && { [ -e $unfinished ] || ! $venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    say "an earlier set-up was cut short: making $venv anew"
    rm -rf $venv
fi
if [ ! -e $venv ]; then
    say "making $venv with $python ($(version_of "$python"))"
    "$python" -m venv $venv || fail "'$python -m venv $venv' failed" "mend what it says above, then run the same command again"
fi

mkdir -p build/setup
: >$log
rm -f $stamp
touch $unfinished
say "installing $(grep -c '==' requirements.txt) packages: some minutes the first time (log: $log)"
pip_install -r requirements.txt || { rm -f $unfinished; explain_pip; }
pip_install --no-deps --no-build-isolation -e . || { rm -f $unfinished; explain_pip; }
wanted >$stamp
rm -f $unfinished
say "$venv is ready"
