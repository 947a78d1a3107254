# Slow clients of kvcl_serve's HTTP server, at host:port (argv[1], an address of 127.0.0.0/8): /healthz is answered all
# the time; a client of another address is not cut off; one that trickles bytes is, though it is never silent for long.
# While a rank (process argv[3]; the server's is argv[2]) is stopped, requests of /ranks beyond four are refused.
import os
import signal
import socket
import sys

host, port = sys.argv[1].rsplit(":", 1)


def connect(source="127.0.0.1", window=0):
    one = socket.socket()
    if window:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    one.settimeout(60)
    one.bind((source, 0))
    one.connect((host, int(port)))
    return one


def reply_of(one):
    said = b""
    while True:
        more = one.recv(4096)
        if not more:
            return said
        said += more


def healthy(source="127.0.0.1"):
    one = connect(source)
    one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    said = reply_of(one)
    assert b" 200 " in said and said.endswith(b"ok\n"), said


def is_cut_off(one, text, pause):
    """Send text, a byte each `pause` seconds, until the server closes. True: it did before the text ended."""
    one.settimeout(pause)
    for at in range(len(text)):
        try:
            one.sendall(text[at:at + 1])
            if not one.recv(1):
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


other = connect("127.0.0.3")
other.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
held = []
for i in range(64):
    held.append(connect())
    held[-1].sendall(b"GET /heal" if i % 2 else b"")
    if i % 16 == 15:
        healthy()
for i in range(64):
    held.append(connect())
    held[-1].sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    if i % 16 == 15:
        healthy()
for i in range(64):
    held.append(connect(window=2048))
    held[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 40)
    if i % 16 == 15:
        healthy()
healthy("127.0.0.2")
for i in range(56): # many addresses: room is made by the address with the most connections
    held.append(connect("127.0.1.%d" % (i + 1)))
healthy()
other.sendall(b"\r\n")
assert b" 200 " in reply_of(other)
slow = connect("127.0.0.4")
assert is_cut_off(slow, b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 1500, 0.05), "a trickling client is served for ever"
healthy()

# All twelve requests wait in the sockets of a server that is stopped: it begins them at once.
asking = [connect("127.0.0.5") for i in range(12)]
for one in asking: # a request before shows that the server has a thread for the connection
    one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    said = b""
    while not said.endswith(b"ok\n"):
        said += one.recv(4096)
server, peer = int(sys.argv[2]), int(sys.argv[3])
os.kill(peer, signal.SIGSTOP)
try:
    os.kill(server, signal.SIGSTOP)
    for one in asking:
        one.sendall(b"GET /ranks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    os.kill(server, signal.SIGCONT)
    healthy("127.0.0.6")
    said = [reply_of(one) for one in asking]
finally:
    os.kill(peer, signal.SIGCONT)
busy = [one for one in said if b" 503 " in one and one.endswith(b"busy: 4 requests of /ranks are in progress\n")]
served = [one for one in said if b" 200 " in one and b'"rank": 2' in one]
assert len(busy) >= 1 and len(busy) + len(served) == 12, said
