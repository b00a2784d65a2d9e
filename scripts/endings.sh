# SPDX-License-Identifier: Apache-2.0
# For bash scripts, sourced: SIGINT, SIGTERM and SIGHUP end what `run` has started, with all its children, before the
# script ends with 128 + the signal's number. Without it bash goes on until its present command is done.

running=""

# run COMMAND...: runs it to its end, in a process group of its own; its exit status.
run() {
  set -m
  "$@" &
  set +m
  running=$!
  wait "$running"
  local status=$?
  running=""
  return "$status"
}

end_by_signal() {
  trap '' INT TERM HUP
  if [ -n "$running" ]; then
    kill -TERM -- "-$running" 2>/dev/null
    # Ten seconds to clean, then none.
    for _ in {1..100}; do
      kill -0 -- "-$running" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL -- "-$running" 2>/dev/null
    wait "$running" 2>/dev/null
  fi
  echo "$(basename "$0"): ended by SIG$2" >&2
  exit $((128 + $1))
}
trap 'end_by_signal 2 INT' INT
trap 'end_by_signal 15 TERM' TERM
trap 'end_by_signal 1 HUP' HUP
