r"""The scripts by which the launcher ``docker`` works on a host, for any POSIX shell.

1. A container is ours by its label; another one of that name is never removed. One that runs is not removed either:
   ``rm`` without force refuses it, whatever has happened since the look.
2. A keeper (a shell that waits) stays beside each container: it writes what the container says into the server's log,
   where everybody looks for it, and notes the exit status when the container has ended.
3. The environment travels in a file that only its owner can read and that is gone when the container runs.
"""

from __future__ import annotations

from bot.domain.shell import PROCESS, RECORDS
from bot.launchers._process_scripts import FAIL, OPENING, RECORDED

# $1 state directory, $2 server, $3 log, $4 how many old logs to keep, $5 docker or what obeys the same words, $6 the
# container's name, $7 the digest of the launch, $8 the argv for the record, $9 the keeper's script. Records on stdin:
# the options, image and arguments of `docker run`, and the environment file as the note.
START = (
    OPENING
    + r"""
log=$3 keep=$4 asked=$5 name=$6 digest=$7 shown=$8 keeper=$9
"""
    + RECORDS
    + r"""
[ -n "$records_end" ] || fail 'the start was cut off'
tool=$(command -v -- "$asked") || fail "there is no command $asked there"
found=$("$tool" inspect --type container -f \
  '{{.State.Status}} {{.State.Pid}} {{index .Config.Labels "upbot.server"}} {{index .Config.Labels "upbot.launch"}}' \
  "$name" 2>"$dir/said") || {
  found=
  said=$(tail -n 1 "$dir/said")
  case $said in *[Nn]o\ such\ *) ;; *) fail "docker does not answer: $said" ;; esac
}
if [ -n "$found" ]; then
  is=${found%% *} rest=${found#* }
  pid=${rest%% *} rest=${rest#* }
  [ "${rest%% *}" = "$name" ] || fail "a container $name is there that is not ours; it was left alone"
  case $is in
    running | paused | restarting)
      if [ "${rest#* }" = "$digest" ]; then
        printf 'running\n{"pid": %s, "argv": %s}\n' "$pid" "$shown"
      else
        printf 'running\n{"pid": %s}\n' "$pid"
      fi
      exit 0
      ;;
  esac
  why=$("$tool" rm "$name" 2>&1) || fail "the old container can't be removed: $why"
fi
open_log "$log" "$keep"
rm -f -- "$dir/start.json" "$dir/exit"
why=$({ (umask 077; printf '%s' "$records_note" >"$dir/env"); } 2>&1) || fail "the environment can't be passed: $why"
id=$("$tool" run -d --name "$name" --label "upbot.server=$name" --label "upbot.launch=$digest" \
  --env-file "$dir/env" "$@" 2>"$dir/said" 9>&-)
status=$?
rm -f -- "$dir/env"
[ "$status" -eq 0 ] || { # one that was made and could not begin would be in the way
  said=$(tail -n 1 "$dir/said")
  "$tool" rm "$name" >/dev/null 2>&1
  fail "${said:-docker run ended with $status}"
}
rm -f -- "$dir/said"
pid=$("$tool" inspect --type container -f '{{.State.Pid}}' "$id" 2>/dev/null)
started=0
if process "${pid:-0}"; then started=$process_ticks; fi
at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
why=$({ printf '{"pid": %s, "started": %s, "keeper": 0, "at": "%s", "container": "%s", "argv": %s}\n' \
  "${pid:-0}" "$started" "$at" "$id" "$shown" >"$dir/start.json.new" &&
  mv -f -- "$dir/start.json.new" "$dir/start.json"; } 2>&1) || fail "the start can not be recorded: $why"
setsid sh -c "$keeper" upbot-keeper "$dir" "$log" "$tool" "$id" </dev/null >/dev/null 2>&1 9>&- &
echo "started $pid $started"
"""
)

# $1 the server's state directory, $2 its log, $3 docker, $4 the container.
KEEPER = r"""
since=0
while :; do
  next=$(date +%s)
  "$3" logs -f --since "$since" "$4" >>"$2" 2>&1
  # The daemon may have been restarted under a container that goes on.
  [ "$("$3" inspect --type container -f '{{.State.Running}}' "$4")" = true ] || break
  since=$next
  sleep 1
done
status=$("$3" wait "$4") || status=$("$3" inspect --type container -f '{{.State.ExitCode}}' "$4") || exit 0
case $status in '' | *[!0-9]*) exit 0 ;; esac
if command -v flock; then
  exec 9>>"$1/lock"
  flock 9
fi
case $(cat "$1/start.json") in
  *"\"container\": \"$4\""*) echo "$status" >"$1/exit.new" && mv -f -- "$1/exit.new" "$1/exit" ;;
esac
"""

# $1 docker, $2 the container's name, $3 pid, $4 its start in ticks, $5 TERM or KILL. Prints "other" where that process
# is not the container's first one.
SIGNAL = (
    FAIL
    + PROCESS
    + r"""
lives "$3" "$4" || { echo gone; exit 0; }
main=$("$1" inspect --type container -f '{{.State.Pid}}' "$2" 2>/dev/null)
[ "$main" = "$3" ] || { echo other; exit 0; }
lives "$3" "$4" || { echo gone; exit 0; }
why=$("$1" kill --signal "$5" "$2" 2>&1) && { echo "signalled $3"; exit 0; }
lives "$3" "$4" || { echo gone; exit 0; }
fail "$why"
"""
)

# $1 state directory, $2 server, $3 docker, $4 the container's name. As LAUNCHED; where nothing was noted (the keeper is
# gone, the host was down), the container itself may know.
LAST = (
    FAIL
    + RECORDED
    + r"""
case $recorded in
  *'"container": "'*)
    id=${recorded#*'"container": "'}
    id=${id%%\"*}
    if [ -z "$status" ]; then
      found=$("$3" inspect --type container -f '{{.Id}} {{.State.Status}} {{.State.ExitCode}}' "$4" 2>/dev/null)
      case $found in "$id exited "*) status=${found##* } ;; esac
    fi
    ;;
esac
printf '%s\n%s\n' "$status" "$recorded"
"""
)
