# SPDX-License-Identifier: Apache-2.0
"""How scripts end: whatever ends them, nothing that they started or made is left.

SIGINT, SIGTERM and SIGHUP become an exception that runs every `finally`; children die with the script even when it is
killed by SIGKILL; what such a script left in /tmp is removed by the next one.
"""
import contextlib
import fcntl
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOCK = ".lock"
PATIENCE_S = 10  # for a child to end after SIGTERM


class Signalled(BaseException):
    """A signal asks the script to end."""

    def __init__(self, number):
        super().__init__(f"signal {number}")
        self.number = number


def _raise(number, _frame):
    for each in SIGNALS:  # cleaning is not interrupted
        signal.signal(each, signal.SIG_IGN)
    raise Signalled(number)


def exit_code_of(main):
    """Runs main(); its exit code, or 128 + N after signal N."""
    for number in SIGNALS:
        signal.signal(number, _raise)
    try:
        return main()
    except Signalled as ended:
        print(f"{pathlib.Path(sys.argv[0]).name}: ended by {signal.Signals(ended.number).name}", file=sys.stderr)
        return 128 + ended.number


def dies_with_me(command, number="TERM"):
    """The command, to be sent the signal when this script is gone."""
    prefix = ["setpriv", "--pdeathsig", number, "--"] if shutil.which("setpriv") else []
    return prefix + [str(word) for word in command]


def end(process):
    """Ends a child and waits for it: SIGTERM, which it may use to clean, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run(command, timeout=None, **options):
    """subprocess.run() whose child ends by SIGTERM when this call ends early. Captures both outputs as text."""
    process = subprocess.Popen(dies_with_me(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, **options)
    try:
        output, error = process.communicate(timeout=timeout)
    finally:
        end(process)
    return subprocess.CompletedProcess(command, process.returncode, output, error)


def _is_abandoned(folder):
    """True when its script is dead: only the script's end gives the lock back."""
    try:
        with open(folder / LOCK, "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except OSError:
        return False  # no lock: kept on purpose, being made, or somebody else's


def keep(folder):
    """The folder stays when the script ends, and is nobody's to remove."""
    (folder / LOCK).unlink(missing_ok=True)


@contextlib.contextmanager
def scratch(prefix):
    """A folder in /tmp that goes with the script; keep() lets it stay."""
    for old in pathlib.Path(tempfile.gettempdir()).glob(prefix + "*"):
        if _is_abandoned(old):
            shutil.rmtree(old, ignore_errors=True)
    folder = None
    with contextlib.ExitStack() as stack:
        # No signal between making the folder and knowing it.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
            lock = stack.enter_context(open(folder / LOCK, "wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            stack.callback(lambda: (folder / LOCK).exists() and shutil.rmtree(folder, ignore_errors=True))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        yield folder
