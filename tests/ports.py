"""A port for a program that is told of it, and binds it by itself.

Between the moment at which a free port is found and the one at which the program has it, and again while the program
is killed and started anew, the system may give it to anybody: another test, or one end of a connection.
"""

import socket
import sys

HOST = "127.0.0.1"


class KeptPort:
    """Nobody is given `port` until `close`; whoever asks for it by its number, and may reuse addresses, has it."""

    def __init__(self) -> None:
        self._kept = socket.socket()
        # Linux lets two sockets that both say so have one port, as long as at most one of them listens (socket(7)).
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind((HOST, 0))
        self.port: int = self._kept.getsockname()[1]
        if sys.platform != "linux":
            self._kept.close()

    def close(self) -> None:
        self._kept.close()
