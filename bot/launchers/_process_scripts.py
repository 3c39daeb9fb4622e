r"""The scripts by which the launcher ``process`` works on a host, for any POSIX shell.

1. ``setsid setsid`` and not ``&``: a shell makes its background children ignore SIGINT and SIGQUIT, and nothing
   can undo that for the server; the second setsid finds itself a group's leader and therefore forks.
2. A keeper (a shell that waits) stays beside each server, because only a parent learns the exit status. Its own
   command line holds neither the server's arguments nor its environment, so nobody takes it for the server.
3. The record is written by the very process that then becomes the server, so there is no server without one.
4. The keeper answers through a pipe that is read up to the first line: it may go on holding the pipe, and it does
   not matter when the reader has been killed.
"""

from __future__ import annotations

from bot.domain.shell import EXPAND, PROCESS, RECORDS

FAIL = r"""
fail() { printf 'failed %s\n' "$*"; exit 1; }
"""

OPENING = (
    EXPAND
    + PROCESS
    + FAIL
    + r"""
room() { # a full disk shows only when something is written
  why=$({ printf '%4096s' '' | cat >"$1.room"; } 2>&1) && rm -f -- "$1.room" && return
  rm -f -- "$1.room"
  fail "$2: $why"
}
rotate() {
  number=$2
  while [ "$number" -gt 1 ]; do
    older=$number
    number=$((number - 1))
    [ ! -e "$1.$number" ] || why=$(mv -f -- "$1.$number" "$1.$older" 2>&1) || fail "the log can't be rotated: $why"
  done
  why=$(mv -f -- "$1" "$1.1" 2>&1) || fail "the log can't be rotated: $why"
}
open_log() { # log (empty: one of its own), how many old ones to keep
  if [ -n "$1" ]; then expand "$1"; log=$expanded; else log=$dir/log; fi
  why=$(mkdir -p -- "${log%/*}/" 2>&1) || fail "the log's directory can't be made: $why"
  if [ ! -e "$log" ] || [ -f "$log" ]; then
    room "$log" 'the log takes nothing'
    if [ "$2" -gt 0 ] && [ -s "$log" ]; then rotate "$log" "$2"; fi
  fi
  why=$({ : >>"$log"; } 2>&1) || fail "the log can't be written: $why"
}

for tool in setsid mkdir mv rm cat sed chmod; do
  command -v "$tool" >/dev/null 2>&1 || fail "there is no $tool there"
done
expand "$1"
dir=$expanded/$2
why=$(umask 077; mkdir -p -- "$dir" 2>&1) || fail "the state directory can't be made: $why"
why=$(chmod 700 -- "$dir" 2>&1) || fail "the state directory is not ours: $why"
room "$dir/start" 'the state directory takes nothing'
exec 9>>"$dir/lock"
if command -v flock >/dev/null 2>&1; then
  tries=0
  until flock -w 1 9 2>/dev/null || { sleep 1; flock -n 9; }; do # busybox has no -w
    tries=$((tries + 1))
    [ "$tries" -lt 2 ] || fail 'another start of it is under way'
  done
fi

recorded=$(sed -n 's/^{"pid": \([0-9]*\), "started": \([0-9]*\),.*/\1 \2/p' "$dir/start.json" 2>/dev/null)
if [ -n "$recorded" ] && lives "${recorded%' '*}" "${recorded#*' '}"; then
  echo running
  cat -- "$dir/start.json"
  exit 0
fi
"""
)
"""$1 state directory, $2 server: makes and locks the server's own ``dir``, and is done where it runs already."""

# $1 state directory, $2 server, $3 working directory, $4 log, $5 how many old logs to keep, $6 the keeper's script.
START = (
    OPENING
    + r"""
if [ -n "$3" ]; then
  expand "$3"
  why=$(CDPATH= cd -- "$expanded" 2>&1) || fail "the working directory can't be entered: $why"
  CDPATH= cd -- "$expanded"
fi
open_log "$4" "$5"

rm -f -- "$dir/start.json" "$dir/exit"
setsid setsid sh -c "$6" upbot-keeper "$dir" "$log" 2>&1 9>&- | {
  IFS= read -r answer
  case $answer in
    started*) # its command line is the server's as soon as it leads a session
      set -- $answer
      tries=0
      while [ "$tries" -lt 40 ] && lives "$2" "$3" && [ "$process_session" != "$2" ]; do
        tries=$((tries + 1))
        sleep 0.05
      done
      ;;
  esac
  printf '%s\n' "${answer:-failed the start was cut off}"
}
"""
)

# $1 the server's state directory, $2 its log. Records on stdin: the words, the note for the record, the environment.
KEEPER = (
    PROCESS
    + FAIL
    + r"""
keeper_dir=$1
keeper_log=$2
# The shell says "Killed" when its child was, into a pipe that nobody reads any more: that would end the keeper.
exec 2>/dev/null
(
  exec 2>&1
  keeper_setsid=$(command -v setsid)
  keeper_path=$PATH
  keeper_at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  process self || fail 'there is no /proc there'
  keeper_pid=$process_pid
  keeper_ticks=$process_ticks
"""
    + RECORDS
    + r"""
  [ -n "$records_end" ] || fail 'the start was cut off'
  case $1 in
    */*) [ -f "$1" ] && [ -x "$1" ] || fail "$1 is no program" ;;
    *) command -v -- "$1" >/dev/null 2>&1 || fail "there is no command $1" ;;
  esac
  {
    printf '{"pid": %s, "started": %s, "keeper": %s, "at": "%s", "argv": %s}\n' \
      "$keeper_pid" "$keeper_ticks" "$$" "$keeper_at" "$records_note" >"$keeper_dir/start.json.new"
  } 2>/dev/null || fail 'the start can not be recorded'
  (PATH=$keeper_path; exec mv -f -- "$keeper_dir/start.json.new" "$keeper_dir/start.json") ||
    fail 'the start can not be recorded'
  (trap '' PIPE; printf 'started %s %s\n' "$keeper_pid" "$keeper_ticks") 2>/dev/null
  exec "$keeper_setsid" -- "$@" </dev/null >>"$keeper_log" 2>&1
)
keeper_status=$?
exec </dev/null >/dev/null 2>&1
if command -v flock; then
  exec 9>>"$keeper_dir/lock"
  flock 9
fi
# A later start has a record of its own, and this end is none of its business.
[ "$(sed -n 's/^{.*"keeper": \([0-9]*\), "at".*/\1/p' "$keeper_dir/start.json")" = "$$" ] || exit 0
printf '%s\n' "$keeper_status" >"$keeper_dir/exit.new" && mv -f -- "$keeper_dir/exit.new" "$keeper_dir/exit"
"""
)

RECORDED = (
    EXPAND
    + r"""
expand "$1"
dir=$expanded/$2
status=
{ IFS= read -r status <"$dir/exit"; } 2>/dev/null
{ IFS= read -r recorded <"$dir/start.json"; } 2>/dev/null
"""
)
"""$1 state directory, $2 server: sets ``status`` (empty while there is none) and ``recorded``."""

LAUNCHED = (
    RECORDED
    + r"""
printf '%s\n%s\n' "$status" "$recorded"
"""
)

# $1 pid, $2 its start in ticks.
TERMINATE = (
    PROCESS
    + FAIL
    + r"""
lives "$1" "$2" || { echo gone; exit 0; }
kill -s TERM "$1" 2>/dev/null && { echo "signalled $1"; exit 0; }
lives "$1" "$2" || { echo gone; exit 0; }
fail 'this login may not signal it'
"""
)

# $1 pid, $2 its start in ticks. Its descendants, and its group's and session's members where it leads them. The
# members stay known by the number of group and session (the kernel gives it to nobody while one lives), children
# that left both only while their parent lives: so the tree is drawn before the first signal.
KILL_TREE = (
    PROCESS
    + FAIL
    + r"""
survey() {
  list=
  for entry in /proc/[0-9]*; do
    process "${entry#/proc/}" || continue
    case $process_state in Z | X | x) continue ;; esac
    list="$list $process_pid:$process_ticks:$process_parent:$process_group:$process_session"
  done
}
belongs() { # pid, parent, group, session
  case $tree in *" $1 "*) return 1 ;; *" $2 "*) return 0 ;; esac
  [ "$3" = "$group" ] || [ "$4" = "$session" ]
}
grow() {
  more=
  for item in $list; do
    rest=${item#*:}
    rest=${rest#*:}
    tail=${rest#*:}
    belongs "${item%%:*}" "${rest%%:*}" "${tail%%:*}" "${tail#*:}" || continue
    tree="$tree${item%%:*} "
    targets="$targets $item"
    more=1
  done
}
slay() { # pid, ticks
  [ "$1" != "$$" ] && lives "$1" "$2" || return 0
  kill -s KILL "$1" 2>/dev/null && slain="$slain $1" && return 0
  ! lives "$1" "$2" || spared="$spared $1"
}

lives "$1" "$2" || { echo gone; exit 0; }
group=none session=none slain= spared= tree=" $1 " targets=" $1:$2:"
[ "$process_group" != "$1" ] || group=$1
[ "$process_session" != "$1" ] || session=$1
survey
passes=0
while [ "$passes" -lt 5 ]; do
  more=1
  while [ -n "$more" ]; do grow; done
  [ -n "$targets" ] || break
  for target in $targets; do
    rest=${target#*:}
    slay "${target%%:*}" "${rest%%:*}"
  done
  targets=
  # Somebody else may have the number by now, and with it a group or session of that number.
  if process "$1" && [ "$process_ticks" != "$2" ]; then break; fi
  survey
  passes=$((passes + 1))
done
[ -z "$spared" ] || fail "this login may not signal$spared"
echo "signalled$slain"
"""
)

# $1 state directory, $2 server, $3 pid, $4 its start in ticks, $5 its arguments for the record.
ADOPT = (
    EXPAND
    + PROCESS
    + FAIL
    + r"""
lives "$3" "$4" || fail 'it is gone'
expand "$1"
dir=$expanded/$2
why=$(umask 077; mkdir -p -- "$dir" 2>&1) || fail "the state directory can't be made: $why"
at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
why=$({ printf '{"pid": %s, "started": %s, "keeper": 0, "at": "%s", "adopted": true, "argv": %s}\n' \
  "$3" "$4" "$at" "$5" >"$dir/start.json.new"; } 2>&1) || fail "it can't be recorded: $why"
why=$(mv -f -- "$dir/start.json.new" "$dir/start.json" 2>&1) || fail "it can't be recorded: $why"
rm -f -- "$dir/exit"
echo adopted
"""
)
