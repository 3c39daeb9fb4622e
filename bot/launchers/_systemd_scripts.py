r"""The scripts by which the launcher ``systemd`` works on a host, for any POSIX shell.

1. What we want of a unit stands in files of the runtime directory (under /run: gone with the next boot, and never
   among the administrator's own): the unit itself where it is ours, else a drop-in of the configured one.
2. The environment stands in a file beside them that only its owner can read, because everybody on a host may ask
   systemd for a unit's ``Environment=``.
3. systemd itself takes the old exit status away before a start and notes the new one after the end, so the two can't
   overtake each other.
"""

from __future__ import annotations

from bot.domain.shell import RECORDS
from bot.launchers._process_scripts import FAIL, OPENING, RECORDED

# $manager is set: system or user.
_UNIT = r"""
case $manager in
  user)
    export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
    where=$XDG_RUNTIME_DIR/systemd/user
    privileged=
    control() { systemctl --user --no-pager "$@"; }
    ;;
  *)
    where=/run/systemd/system
    privileged=+
    control() { systemctl --no-pager --no-ask-password "$@"; }
    ;;
esac
state() { # of $unit
  load= active= result= restart=no main=0 last=0 code=0 status=0 job=0
  answer=$(control show -p LoadState -p ActiveState -p Result -p Restart -p MainPID -p ExecMainPID \
    -p ExecMainCode -p ExecMainStatus -p Job -- "$unit" 2>&1) || return 1
  while IFS='=' read -r key value; do
    case $key in
      LoadState) load=$value ;;
      ActiveState) active=$value ;;
      Result) result=$value ;;
      Restart) restart=$value ;;
      MainPID) main=$value ;;
      ExecMainPID) last=$value ;;
      ExecMainCode) code=$value ;;
      ExecMainStatus) status=$value ;;
      Job) job=$value ;;
    esac
  done <<ANSWER
$answer
ANSWER
  [ -n "$load" ]
}
command -v systemctl >/dev/null 2>&1 || fail 'there is no systemctl there'
"""

# $1 state directory, $2 server, $3 unit, $4 "own" or "configured", $5 manager, $6 working directory, $7 log ("-" leaves
# the output where the unit sends it), $8 how many old logs to keep, $9 the program, ${10} the argv for the record,
# ${11} ENDED. Records on stdin: one word with the arguments as systemd quotes them, and the environment file as the
# note.
START = (
    OPENING
    + r"""
server=$2 unit=$3 kind=$4 manager=$5 directory=$6 log=$7 keep=$8 program=$9
shift 9
shown=$1 ended=$2
"""
    + RECORDS
    + _UNIT
    + r"""
[ -n "$records_end" ] || fail 'the start was cut off'
arguments=$1
plain() { # a path as a unit file takes it: one line, its per cent signs doubled
  case $1 in *'
'* | *'\') fail "a unit can't be given the path $1" ;; esac
  path=$(printf '%s' "$1" | sed 's/%/%%/g')
}
quoted() { # a path as a word of a command line in a unit file
  plain "$1"
  path=\"$(printf '%s' "$path" | sed 's/\\/\\\\/g; s/"/\\"/g; s/\$/$$/g')\"
}
variable() { printf '%s="%s"\n' "$1" "$(printf '%s' "$2" | sed 's/[\\"$`]/\\&/g')"; }

state || fail "systemd does not answer: $answer"
[ "$kind" = own ] || [ "$load" = loaded ] || fail "the unit $unit is not there ($load)"
if [ "$main" -gt 0 ] && [ "$active" != deactivating ]; then
  printf 'running\n{"pid": %s}\n' "$main"
  exit 0
fi

case $program in
  */*) [ -f "$program" ] && [ -x "$program" ] || fail "$program is no program" ;;
  *) found=$(command -v -- "$program") || fail "there is no command $program"
    program=$found ;;
esac
case $program in /*) ;; *) fail "$program has no absolute path, and a unit needs one" ;; esac
if [ -n "$directory" ]; then
  expand "$directory"
  directory=$expanded
  why=$(CDPATH= cd -- "$directory" 2>&1) || fail "the working directory can't be entered: $why"
fi
[ "$log" = - ] || open_log "$log" "$keep"

folder=$where/$unit.d
why=$(umask 022; mkdir -p -- "$folder" 2>&1) || fail "the unit's folder can't be made: $why"
write() { why=$({ cat >"$1.new" && mv -f -- "$1.new" "$1"; } 2>&1) || fail "the unit can't be written: $why"; }
umask 077
{
  if [ "$kind" = own ]; then
    for name in HOME USER LOGNAME PATH LANG; do
      eval "value=\${$name-}"
      [ -z "$value" ] || variable "$name" "$value"
    done
  fi
  printf '%s' "$records_note"
} | write "$folder/upbot.env"
if [ "$kind" = own ]; then
  printf '[Unit]\nDescription=%s, started by upbot\n[Service]\nType=exec\nTasksMax=infinity\n' "$server" |
    write "$where/$unit"
fi
quoted "$dir"
note=$path
plain "$folder/upbot.env"
environment=$path
quoted "$program"
program=$path
{
  printf '[Service]\nEnvironmentFile=%s\nExecStart=\nExecStart=%s%s\n' "$environment" "$program" "$arguments"
  printf 'ExecStartPre=%s/bin/sh -c '\''rm -f -- "$$1/exit"'\'' upbot %s\n' "$privileged" "$note"
  printf 'ExecStopPost=%s/bin/sh -c '\''%s'\'' upbot %s\n' "$privileged" "$ended" "$note"
  if [ -n "$directory" ]; then plain "$directory"; printf 'WorkingDirectory=%s\n' "$path"; fi
  if [ "$log" != - ]; then
    plain "$log"
    printf 'StandardOutput=append:%s\nStandardError=inherit\n' "$path"
  fi
} | write "$folder/90-upbot.conf"
rm -f -- "$folder/95-upbot-ending.conf"
why=$(control daemon-reload 2>&1) || fail "systemd can't read the unit: $why"
control reset-failed -- "$unit" 2>/dev/null
rm -f -- "$dir/start.json" "$dir/exit"
why=$(control start --no-block -- "$unit" 2>&1) || fail "systemd can't start $unit: $why"

tries=0
while [ "$tries" -lt 200 ]; do
  state || fail "systemd does not answer: $answer"
  if [ "$main" -gt 0 ] && [ "$active" != deactivating ]; then
    tries_left=20
    while [ "$tries_left" -gt 0 ] && [ "$active" = activating ]; do # until it is the server, no longer systemd's child
      tries_left=$((tries_left - 1))
      sleep 0.05
      state || break
    done
    [ "$main" -eq 0 ] || break
  fi
  if [ "$job" = 0 ] || [ -z "$job" ]; then
    case $active in failed | inactive | deactivating) break ;; esac
  fi
  tries=$((tries + 1))
  sleep 0.05
done
[ "$main" -gt 0 ] || { # of a unit that ended well systemd forgets everything, but it has noted the end
  [ "$last" -gt 0 ] || [ -e "$dir/exit" ] || fail "systemd did not start $unit: ${result:-nothing came of it}"
  case $code:$status in 1:2[0-4]?) fail "systemd could not start $unit: its status $status says why" ;; esac
}
started=0
pid=$main
[ "$pid" -gt 0 ] || pid=$last
if process "$pid"; then started=$process_ticks; fi
at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
why=$({ printf '{"pid": %s, "started": %s, "keeper": 0, "at": "%s", "argv": %s}\n' \
  "$pid" "$started" "$at" "$shown" >"$dir/start.json.new" &&
  mv -f -- "$dir/start.json.new" "$dir/start.json"; } 2>&1) || fail "the start can not be recorded: $why"
echo "started $pid $started"
"""
)

# Run by systemd after every end; $$ is how a unit file writes $. The words are systemd's: exited 3, killed TERM.
ENDED = (
    'case "$$EXIT_CODE:$$EXIT_STATUS" in exited:*) s=$$EXIT_STATUS ;; '
    "*:HUP) s=129 ;; *:INT) s=130 ;; *:QUIT) s=131 ;; *:ILL) s=132 ;; *:TRAP) s=133 ;; *:ABRT) s=134 ;; "
    "*:BUS) s=135 ;; *:FPE) s=136 ;; *:KILL) s=137 ;; *:USR1) s=138 ;; *:SEGV) s=139 ;; *:USR2) s=140 ;; "
    "*:PIPE) s=141 ;; *:ALRM) s=142 ;; *:TERM) s=143 ;; killed:* | dumped:*) s=255 ;; *) exit 0 ;; esac; "
    'echo "$$s" >"$$1/exit.new" && mv -f -- "$$1/exit.new" "$$1/exit"'
)

# $1 unit, $2 manager, $3 pid. Prints "other" where that is no process of the unit. What systemd would start again is
# told not to be, until we start it.
HOLD = (
    FAIL
    + r"""
unit=$1 manager=$2
"""
    + _UNIT
    + r"""
state || { echo other; exit 0; }
# A unit may start its server by a script that waits for it.
[ "$main" = "$3" ] || grep -qF "/$unit" "/proc/$3/cgroup" 2>/dev/null || { echo other; exit 0; }
[ "$restart" != no ] || { echo main; exit 0; }
folder=$where/$unit.d
why=$({ (umask 022; mkdir -p -- "$folder") &&
  printf '[Service]\nRestart=no\n' >"$folder/95-upbot-ending.conf"; } 2>&1) ||
  fail "systemd would start it again (Restart=$restart), and this login can't keep it from that: $why"
why=$(control daemon-reload 2>&1) || fail "systemd would start it again (Restart=$restart): $why"
echo "held $restart"
"""
)

# $1 state directory, $2 server, $3 unit, $4 manager. As LAUNCHED; where nothing was noted, systemd may know.
LAST = (
    FAIL
    + RECORDED
    + r"""
noted=$status unit=$3 manager=$4
pid=$(printf '%s' "$recorded" | sed -n 's/^{"pid": \([0-9]*\),.*/\1/p')
[ -z "$pid" ] || [ -n "$noted" ] || {
"""
    + _UNIT
    + r"""
  if state && [ "$main" = 0 ] && [ "$last" = "$pid" ]; then
    case $code in 1) noted=$status ;; 2 | 3) noted=$((128 + status)) ;; esac
  fi
}
printf '%s\n%s\n' "$noted" "$recorded"
"""
)
