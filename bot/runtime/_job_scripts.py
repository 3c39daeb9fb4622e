r"""The scripts by which a host tells of a job and acts on it, for any POSIX shell.

What may be secret or holds a tmux separator goes into a file of the state directory instead of tmux's command
line: there a last ``;`` would end the command, and tmux would run a one-word command through a shell.
"""

from __future__ import annotations

from bot.domain.shell import EXPAND, PROCESS, RECORDS

_PLACE = r"""
fail() { printf 'failed %s\n' "$*"; exit 1; }
expand "$1"
dir=$expanded/$2
"""

# $1 state directory, $2 the job's folder, $3 its directory, $4 its pid file, $5 its progress file, $6 how many bytes
# of it, $7 its session; then the tmux command. Prints lines "key value", an empty line, and the progress file's end.
LOOK = (
    EXPAND
    + PROCESS
    + _PLACE
    + r"""
directory=$3 pid_file=$4 progress=$5 limit=$6 session=$7
shift 7
flat() { tr '\000\012' '\036\037'; }
told() { printf '%s ' "$1"; flat; echo; }
describe() {
  case $1 in '' | 0* | *[!0-9]*) return 0 ;; esac
  process "$1" || return 0
  front=$process_front
  case $described in *" $1 "*) return 0 ;; esac
  described="$described$1 "
  printf 'process %s %s %s %s %s ' \
    "$process_pid" "$process_state" "$process_group" "$process_front" "$process_ticks"
  head -c 16384 "/proc/$1/cmdline" 2>/dev/null | flat
  echo
}
described=' '
echo look
if [ -n "$directory" ]; then
  expand "$directory"
  CDPATH= cd -- "$expanded" 2>/dev/null || :
fi
if [ -f "$dir/start.json" ]; then
  recorded=$(sed -n 's/^{"pid": \([0-9]*\), "started": \([0-9]*\),.*/\1 \2/p' "$dir/start.json")
  keeper=$(sed -n 's/^{.*"keeper": \([0-9]*\), "at".*/\1/p' "$dir/start.json")
  tries=0 # between an end and its note there is a moment
  while [ ! -f "$dir/exit" ] && [ "$tries" -lt 10 ] && process "${keeper:-0}" &&
    ! lives "${recorded%' '*}" "${recorded#*' '}"; do
    tries=$((tries + 1))
    sleep 0.1
  done
  printf 'record %s\n' "$recorded"
  describe "${recorded%' '*}"
fi
if [ -n "$pid_file" ]; then
  expand "$pid_file"
  if [ -f "$expanded" ]; then
    pid=$(head -c 100 -- "$expanded" | tr -c '0-9' ' ')
    pid=${pid#"${pid%%[0-9]*}"}
    pid=${pid%%' '*}
    printf 'pid %s\n' "$pid"
    describe "$pid"
  fi
fi
if [ -n "$session" ]; then
  if ! command -v -- "$1" >/dev/null 2>&1; then
    echo 'trouble tmux is not installed there'
  elif said=$("$@" has-session -t "=$session" 2>&1); then
    format='pane #{pane_id},#{pane_dead},#{pane_dead_status},#{pane_pid}'
    "$@" list-panes -s -t "=$session" -F "$format" 2>/dev/null |
      while IFS= read -r line; do
        printf '%s\n' "$line"
        front=
        describe "${line##*,}"
        describe "$front"
      done
  else
    case $said in
      "can't find session"* | 'no server running'*) ;;
      *'No such file or directory'* | *'Connection refused'*) ;;
      *) printf '%s' "$said" | told trouble ;;
    esac
  fi
fi
# After the processes: what is seen as ended has had its time to be noted.
for item in exit ended asked; do
  [ ! -f "$dir/$item" ] || head -c 200 -- "$dir/$item" | told "$item"
done
if [ -n "$progress" ]; then
  expand "$progress"
  if [ ! -f "$expanded" ]; then echo 'progress there is no progress file'
  elif [ ! -r "$expanded" ]; then echo 'progress the progress file may not be read'
  else
    echo
    tail -c "$limit" -- "$expanded"
  fi
fi
exit 0
"""
)

_ASKED = r"""
# Noted first: a job that is saving its work must not be interrupted a second time.
why=$({
  mkdir -p -- "$dir" && printf '%s\n' "$3" >"$dir/asked.new" && mv -f -- "$dir/asked.new" "$dir/asked"
} 2>&1) || :
"""

# $1 state directory, $2 the job's folder, $3 the note of having asked, $4 pid, $5 its start in ticks.
INTERRUPT = (
    EXPAND
    + PROCESS
    + _PLACE
    + r"""
lives "$4" "$5" || { echo gone; exit 0; }
"""
    + _ASKED
    + r"""
lives "$4" "$5" || { echo gone; exit 0; }
kill -s INT "$4" 2>/dev/null && { echo asked; exit 0; }
lives "$4" "$5" || { echo gone; exit 0; }
fail 'this login may not signal it'
"""
)

# $1 to $3 as above, then the whole tmux command that sends the keys.
KEYS = (
    EXPAND
    + _PLACE
    + _ASKED
    + r"""
shift 3
why=$("$@" 2>&1 </dev/null) || fail "$why"
echo asked
"""
)

# $1 state directory, $2 the job's folder, $3 its directory, then the whole tmux command. Records on stdin.
OPEN = (
    EXPAND
    + _PLACE
    + r"""
why=$(umask 077; mkdir -p -- "$dir" 2>&1) || fail "the state directory can't be made: $why"
rm -f -- "$dir/order" "$dir/ended"
why=$({ chmod 700 -- "$dir" && umask 077 && cat >"$dir/order"; } 2>&1) || fail "$why"
if [ -n "$3" ]; then
  expand "$3"
  why=$(CDPATH= cd -- "$expanded" 2>&1) || fail "the working directory can't be entered: $why"
fi
command -v -- "$4" >/dev/null 2>&1 || fail 'tmux is not installed there'
shift 3
why=$("$@" 2>&1 </dev/null) || { rm -f -- "$dir/order"; fail "$why"; }
echo started
"""
)

# What a pane runs: $1 state directory, $2 the job's folder. It stays beside the job to note how it ended (tmux 3.3
# loses a status now and then); a Ctrl-C in the pane reaches both, and it waits on.
PANE = (
    EXPAND
    + r"""
expand "$1"
pane_dir=$expanded/$2
{
"""
    + RECORDS
    + r"""
} <"$pane_dir/order"
rm -f -- "$pane_dir/order"
[ -n "$records_end" ] || { echo 'the order to start is incomplete'; exit 70; }
if [ -n "$records_note" ]; then
  expand "$records_note"
  CDPATH= cd -- "$expanded" || exit 70
fi
trap : INT QUIT
"$@"
pane_status=$?
trap '' INT QUIT
printf '%s %s\n' "$$" "$pane_status" >"$pane_dir/ended"
exit "$pane_status"
"""
)
