"""What all tests share: Ctrl-C works in the processes that they start, also when the tests run in the background.

Our own. A shell starts background commands with SIGINT ignored, and a child inherits that; a handler it does not.
Left out: fixtures, which stand beside their tests.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
