#!/bin/sh
# A stand-in for the command line of Docker. Its containers are folders in $FAKE_DOCKER, and their programs processes of
# this machine that bear their container's variables: no namespaces, so nothing is kept from them.
#
# It knows the commands and options that DockerRuntime uses, complains of others, and behaves as the real one does where
# that matters: a program goes on when the command that started it is killed, and a container's removal ends its programs.

fail() { echo "$1" >&2; exit "${2:-1}"; }
daemon() { fail "Error response from daemon: $1"; }
unknown() { fail "unknown flag: $1" 125; }
quoted() { printf "'"; printf %s "$1" | sed "s/'/'\\\\''/g"; printf "' "; }
image() { printf %s "$FAKE_DOCKER/image $1" | tr / _ | sed "s|^.*image |$FAKE_DOCKER/image |"; }

find_container() {  # into $container
  for container in "$FAKE_DOCKER"/*/; do
    container=${container%/}
    [ -e "$container/id" ] || continue
    [ "${container##*/}" = "$1" ] || [ "$(cat "$container/id")" = "$1" ] && return
  done
  daemon "No such container: $1"
}

with_an_image() {
  [ "$1" = inspect ] || unknown "$1"
  [ -e "$(image "$2")" ] || daemon "No such image: $2"
}

pull() {
  [ "$1" = -q ] && shift
  case $1 in -*) unknown "$1" ;; missing*) daemon "pull access denied for $1" ;; esac
  : > "$(image "$1")"
}

create() {
  labels='' variables='' options='' entry=''
  while :; do
    case $1 in
    --name=*) name=${1#*=} ;;
    --label=*) labels="$labels${1#*=}
" ;;
    --env=*) variables="$variables$(quoted "${1#*=}")" ;;
    --entrypoint=*) entry=${1#*=} ;;
    --cap-drop=* | --security-opt=* | --pids-limit=* | --add-host=* | --memory=* | --memory-swap=* | --cpus=*) ;;
    --user=* | --init) ;;
    -*) unknown "$1" ;;
    *) break ;;
    esac
    options="$options$1
"
    shift
  done
  with_an_image inspect "$1"
  shift
  container=$FAKE_DOCKER/$name
  mkdir "$container" || exit 1
  printf %s "$options" > "$container/options"
  printf %s "$labels" > "$container/labels"
  echo bridge > "$container/networks"
  echo "env -i PATH=$(quoted "$PATH")$variables" > "$container/environment"
  for word in "$entry" "$@"; do quoted "$word"; done > "$container/command"
  od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$container/id"
  cat "$container/id"
}

start() {
  find_container "$1"
  eval "$(cat "$container/environment") setsid $(cat "$container/command") < /dev/null > /dev/null 2>&1 &"
  : > "$container/running"
}

run_in() {
  while :; do
    case $1 in -i | --user=*) shift ;; -*) unknown "$1" ;; *) break ;; esac
  done
  find_container "$1"
  [ -e "$container/running" ] || daemon "container $1 is not running"
  shift
  exec 3<&0
  eval "$(cat "$container/environment") setsid \"\$@\" <&3 3<&- &"
  exec < /dev/null > /dev/null 2>&1 3<&-
  wait $!
}

inspect() {
  [ "$1" = -f ] || unknown "$1"
  find_container "$3"
  case $2 in
  "{{.State.Running}}") if [ -e "$container/running" ]; then echo true; else echo false; fi ;;
  "{{range \$name, \$network := .NetworkSettings.Networks}}{{\$name}} {{end}}") tr '\n' ' ' < "$container/networks" ;;
  *) fail "template parsing error: $2" 64 ;;
  esac
}

network() {
  [ "$1 $2" = "disconnect -f" ] || unknown "$1 $2"
  find_container "$4"
  [ -n "$FAKE_DOCKER_KEEPS_NETWORKS" ] && return
  grep -vx "$3" "$container/networks" > "$container/networks.new"
  mv "$container/networks.new" "$container/networks"
}

ps() {
  all='' label='' status=''
  while [ $# -gt 0 ]; do
    case $1 in
    -a) all=yes ;;
    -q | --no-trunc) ;;
    --filter) shift; case $1 in label=*) label=${1#label=} ;; status=running) status=$1 ;; *) unknown "$1" ;; esac ;;
    *) unknown "$1" ;;
    esac
    shift
  done
  for container in "$FAKE_DOCKER"/*/; do
    [ -e "$container/id" ] || continue
    [ -e "$container/running" ] || { [ -n "$all" ] && [ -z "$status" ]; } || continue
    [ -z "$label" ] || grep -qx "$label" "$container/labels" || continue
    cat "$container/id"
    echo
  done
}

rm_() {
  while :; do case $1 in -f | -v) shift ;; -*) unknown "$1" ;; *) break ;; esac; done
  for word; do
    find_container "$word"
    [ -z "$FAKE_DOCKER_KEEPS_CONTAINERS" ] || daemon "cannot remove container $word: device or resource busy"
    rm -f "$container/running"
    mark=$(sed -n "s/^--env=//p" "$container/options")
    while pids=$(grep -lsF "$mark" /proc/[0-9]*/environ | tr -dc '0-9\n') && [ -n "$pids" ]; do
      kill -9 $pids 2>/dev/null
    done
    rm -rf "$container"
  done
}

[ -z "$FAKE_DOCKER_DOWN" ] ||
  fail "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
verb=$1
shift
echo "$verb" >> "$FAKE_DOCKER/log"
[ -z "$FAKE_DOCKER_BELL" ] || echo "$verb" > "$FAKE_DOCKER_BELL"
case $verb in
exec) run_in "$@" ;;
rm) rm_ "$@" ;;
image) with_an_image "$@" ;;
create | inspect | network | ps | pull | start) "$verb" "$@" ;;
*) fail "docker: unknown command: docker $verb" 125 ;;
esac
