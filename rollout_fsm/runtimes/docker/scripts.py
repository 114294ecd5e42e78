"""What a container's own shell does for the engine: POSIX sh, with `grep`, `sleep`, `cat` and their like beside it.

A script ends with a status of its own for what went wrong; `STATUSES` says what they mean. What a script is told comes
as arguments, or as a line of its input where it is nobody's business on a command line.
"""

import errno
from collections.abc import Mapping

ABSENT = 71
FOLDER = 72
IRREGULAR = 73
LONG = 74
OUTSIDE = 75
DENIED = 76
SURVIVORS = 77
"""The statuses, which the scripts have as numbers."""

STATUSES: Mapping[int, tuple[int, str]] = {
    ABSENT: (errno.ENOENT, "is not there"),
    FOLDER: (errno.EISDIR, "is a folder, not a file"),
    IRREGULAR: (errno.EINVAL, "is not a regular file but a pipe, a socket or a device"),
    LONG: (errno.EFBIG, "is longer than is read at once"),
    OUTSIDE: (errno.EACCES, "leads out of the workspace; what is outside is reached by its own absolute path only"),
    DENIED: (errno.EACCES, "may not be read or written by the container's user"),
}

LIVE = """
trap 'exit 0' TERM
while :; do sleep 86400 & wait $!; done
"""
"""What keeps a container up."""

PREPARE = """
mkdir -p "$1" && chmod 1777 "$1"
"""
"""Make the workspace, as root, for whichever user the programs are."""

RUN = """
_fsm_newline='
'
IFS= read -r _fsm_settings || exit 125
exec 3>&2 2>/dev/null
eval "$_fsm_settings"
_fsm_say() {
  printf '\\n%s %s\\n' "$_fsm_token" "$1"
  printf '\\n%s %s\\n' "$_fsm_token" "$1" >&3
  exit 0
}
_fsm_find() {
  case $1 in */*) printf %s "$1"; return ;; esac
  IFS=:
  for _fsm_folder in $PATH; do
    [ -f "${_fsm_folder:-.}/$1" ] && _fsm_last=${_fsm_folder:-.}/$1 && [ -x "$_fsm_last" ] && break
  done
  printf %s "$_fsm_last"
}
cd "$_fsm_place" || _fsm_say gone
_fsm_file=$(_fsm_find "$1")
[ -f "$_fsm_file" ] || _fsm_say absent
[ -x "$_fsm_file" ] || _fsm_say denied
(exec "$@" 2>&3 3>&-)
_fsm_say $?
"""
"""Run a program, and say behind its output how it ended: the command line that started this may stay connected to what
the program left behind. The first line of the input is assignments: where to run, the token that announces the end, and
the program's variables."""
NEWLINE = "_fsm_newline"
TOKEN = "_fsm_token"
PLACE = "_fsm_place"
"""Variables of that script."""

READ = """
case $1 in /*) ;; *) within=$2; cd "$2" || exit 71 ;; esac
[ -e "$1" ] || exit 71
[ -d "$1" ] && exit 72
if [ -n "$within" ]; then
  real=$(readlink -f -- "$1") root=$(readlink -f -- "$2")
  case $real in "$root"/*) ;; *) exit 75 ;; esac
fi
[ -f "$1" ] || exit 73
[ -r "$1" ] || exit 76
[ "$(wc -c < "$1")" -le "$3" ] || exit 74
exec head -c "$3" -- "$1"
"""
"""Show a file: its path, the workspace, and how many bytes are read at most."""

WRITE = """
case $1 in /*) ;; *) within=$2; cd "$2" || exit 71 ;; esac
case $1 in */*) folder=${1%/*}/ ;; *) folder=./ ;; esac
if [ -n "$within" ]; then
  root=$(readlink -f -- "$2") near=$folder
  until real=$(readlink -f -- "$near"); do
    case $near in */*/) near=${near%/*/}/ ;; *) near=./ ;; esac
  done
  [ -L "$1" ] && real=$(readlink -f -- "$1")
  case $real/ in "$root"/*) ;; *) exit 75 ;; esac
fi
mkdir -p -- "$folder" 2>/dev/null || exit 76
[ -d "$1" ] && exit 72
[ -e "$1" ] && [ ! -f "$1" ] && exit 73
cat > "$1" || exit 76
"""
"""Write the input to a file: its path and the workspace."""

LIST = """
for folder in /proc/[0-9]*; do
  { read -r line < "$folder/stat"; } 2>/dev/null || continue
  set -- ${line##*) }
  echo "${folder#/proc/}.${20}"
done
"""
"""The processes that there are, each with when it was started."""

END = """
# The last look has to find nothing twice: a process may be missed that is just being forked.
pattern=$1 box=$2 grace=$3; shift 3; spared=" $* "
own=; [ "$spared" != "  " ] && grep -qsF -e "$box" /proc/1/environ && own=yes
told=" " quiet=0 ticks=0 signal=TERM

grow() {  # the processes of the table that are in $1 or descend from one of these
  grown=$1 more=yes
  while [ -n "$more" ]; do
    more=
    for row in $table; do
      case $grown in *" ${row%%:*} "*) continue ;; esac
      case $grown in *" ${row#*:} "*) grown="$grown${row%%:*} " more=yes ;; esac
    done
  done
}

look() {  # into $found: the processes that are to end
  seed=" " kept=" $$ " table=
  for file in $(grep -lsF -e "$pattern" /proc/[0-9]*/environ); do
    file=${file#/proc/}; seed="$seed${file%/environ} "
  done
  for folder in /proc/[0-9]*; do
    { read -r line < "$folder/stat"; } 2>/dev/null || continue
    pid=${folder#/proc/}
    set -- ${line##*) }
    case $1 in Z|X) continue ;; esac
    table="$table $pid:$2"
    case $spared in *" $pid.${20} "*) [ "$pid" = 1 ] || kept="$kept$pid " ;; esac
  done
  grow "$seed"; found=" "; marked=$grown
  if [ -n "$own" ]; then grow "$kept"; fi
  for row in $table; do
    pid=${row%%:*}
    case $marked in *" $pid "*) found="$found$pid "; continue ;; esac
    [ -z "$own" ] || [ "$pid" = 1 ] && continue
    case $grown in *" $pid "*) ;; *) found="$found$pid " ;; esac
  done
}

while :; do
  look
  if [ "$found" = " " ]; then
    quiet=$((quiet + 1)); [ $quiet -ge 2 ] && exit 0
  else
    quiet=0
    [ $ticks -ge "$grace" ] && signal=KILL
    [ $ticks -ge $((grace + 50)) ] && echo $found && exit 77
    for pid in $found; do
      case $signal$told in TERM*" $pid "*) ;; *) kill -s $signal "$pid" 2>/dev/null; told="$told$pid " ;; esac
    done
  fi
  sleep 0.1 2>/dev/null || sleep 1
  ticks=$((ticks + 1))
done
"""
"""End the processes that have a pattern in their environment, and what these started: TERM, so many tenths of a second,
KILL. Where the container has processes of its own to itself, all go that were not there to be spared, whatever is in
their environment. Says who survived.
"""
