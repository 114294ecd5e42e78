"""The programs that a box is tested with: shell scripts, of which `$1`, `$2`, … are the arguments.

They need a POSIX shell and the few programs that every system with one has. A named pipe tells who lives: who reads it
comes to its end when the last process is gone that holds it open.
"""

EXIT = 'exit "$1"'
STRIKE_ITSELF = 'kill -s "$1" $$'
BOTH_OUTPUTS = 'printf %s "$1"; printf %s "$2" >&2'
NO_TEXT = r"printf 'before\377\376after'"
ARGUMENTS = 'for each; do printf "<%s>" "$each"; done'
FLOOD = 'echo first; yes filler | head -c "$1"; echo; echo last'
"""Prints so many bytes between the two words."""
WHERE = "pwd"
SHOW = 'cat "$1"'
PUT = 'printf %s "$2" >"$1"'

PIPES = 'mkfifo "$@"'
LEAVE = 'exec 3<>"$1"; sleep 1000 </dev/null >/dev/null 2>&1 &'
"""Ends at once, and leaves a process behind that holds the pipe."""
LEAVE_AND_COPY = f'{LEAVE} cat; echo done >"$2"'
"""The same, but copies its input first, and says in a file that it has come to its end."""
HANG = 'exec 3<>"$1"; sleep 1000 & echo up >"$2"; wait'
"""Never ends, as little as what it started, which holds the pipe; says in a file, or to who reads it, that it is up."""
HANG_STUBBORNLY = f"trap '' TERM INT HUP; {HANG}"
SILENT = 'cat "$1" & : >"$1"; wait'
"""Ends when nobody holds the pipe."""

SERVE = 'while read -r said <"$1"; do echo "$said" >"$2"; done </dev/null >/dev/null 2>&1 &'
"""Leaves a process behind that answers on the second pipe what it is told on the first."""
ASK = 'echo "$3" >"$1"; cat "$2"'
"""Says something on the first pipe, and prints what is answered on the second."""
ANSWER = 'cat "$1"; echo "$3" >"$2"'
"""Answers, once."""

BACKGROUND = '"$@" </dev/null >/dev/null 2>&1 &'
_ASK_BY_PYTHON = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).read().decode(), end=str())"
FETCH = f"""
if command -v curl >/dev/null; then exec curl -sSf --max-time 30 "$1"
elif command -v wget >/dev/null; then exec wget -q -T 30 -O - "$1"
elif command -v python3 >/dev/null; then exec python3 -c '{_ASK_BY_PYTHON}' "$1"
fi
exit 127
"""
"""Prints what a URL answers; 127 where there is no program that could ask."""
SPY = 'cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr "\\0" "\\n"'
"""Prints the command lines and the environments of all processes that are seen."""
