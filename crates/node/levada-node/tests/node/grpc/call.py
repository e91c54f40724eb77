"""A server and a client of gRPC without generated code: `call.py server`, or `call.py client ADDRESS [AUTHORITY]`."""

import sys
import threading
import time
from concurrent import futures

import grpc

OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.enable_http_proxy", 0)]
cancelled = threading.Semaphore(0)


class Service(grpc.GenericRpcHandler):
    def service(self, details):
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return {
            "/t.T/Unary": unary(self.unary),
            "/t.T/Fails": unary(self.fails),
            "/t.T/Sleeps": unary(self.sleeps),
            "/t.T/Cancelled": unary(self.cancelled),
            "/t.T/Huge": unary(self.huge),
            "/t.T/Upload": grpc.stream_unary_rpc_method_handler(self.upload),
            "/t.T/Download": grpc.unary_stream_rpc_method_handler(self.download),
            "/t.T/Endless": grpc.unary_stream_rpc_method_handler(self.endless),
            "/t.T/Echo": stream(self.echo),
        }.get(details.method)

    def unary(self, request, context):
        given = dict(context.invocation_metadata())
        context.send_initial_metadata([("initial", given.get("asked", "nothing"))])
        context.set_trailing_metadata([("trailing-bin", b"\0\1\2"), ("left", str(context.time_remaining() is not None))])
        return request

    def fails(self, request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: 100 %")

    def sleeps(self, request, context):
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(20)
        cancelled.release()
        return b""

    def cancelled(self, request, context):
        return b"yes" if cancelled.acquire(timeout=15) else b"no"

    def huge(self, request, context):
        context.set_trailing_metadata([(f"x-{n}", "y" * 100) for n in range(80)])
        return b""

    def upload(self, requests, context):
        return b"%d" % sum(len(request) for request in requests)

    def download(self, request, context):
        for n in range(int(request)):
            yield b"%d" % n

    def endless(self, request, context):
        context.add_callback(cancelled.release)
        n = 0
        while context.is_active():
            yield b"%d" % n
            n += 1

    def echo(self, requests, context):
        yield from requests


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(32), options=OPTIONS)
    server.add_generic_rpc_handlers((Service(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


def failure(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError("it succeeds")


def check(address, authority):
    if authority:
        with open(authority, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        channel = grpc.secure_channel(address, credentials, options=OPTIONS + [("grpc.ssl_target_name_override", "a.test")])
    else:
        channel = grpc.insecure_channel(address, options=OPTIONS + [("grpc.default_authority", "a.test")])
    unary = lambda name, **more: channel.unary_unary(f"/t.T/{name}")(b"", timeout=more.get("timeout", 15))

    answer, call = channel.unary_unary("/t.T/Unary").with_call(b"hello", timeout=15, metadata=[("asked", "this")])
    assert answer == b"hello"
    assert ("initial", "this") in call.initial_metadata(), call.initial_metadata()
    trailing = dict(call.trailing_metadata())
    assert trailing["trailing-bin"] == b"\0\1\2" and trailing["left"] == "True", trailing
    large = b"x" * (4 << 20)
    assert channel.unary_unary("/t.T/Unary")(large, timeout=15) == large

    assert failure(lambda: unary("Fails")) == (grpc.StatusCode.NOT_FOUND, "no such thing: 100 %")
    assert failure(lambda: unary("Missing"))[0] == grpc.StatusCode.UNIMPLEMENTED

    pieces = (b"x" * 1000 for _ in range(1000))
    assert channel.stream_unary("/t.T/Upload")(pieces, timeout=15) == b"1000000"
    received = list(channel.unary_stream("/t.T/Download")(b"1000", timeout=15))
    assert received == [b"%d" % n for n in range(1000)]

    # One message at a time: the next one goes when the last one has come back.
    turn = threading.Semaphore(1)

    def in_turn():
        for n in range(1000):
            assert turn.acquire(timeout=15)
            yield b"%d" % n

    for n, echo in enumerate(channel.stream_stream("/t.T/Echo")(in_turn(), timeout=30)):
        assert echo == b"%d" % n
        turn.release()
    assert n == 999

    # All at once, with a reader that begins late.
    calls = channel.stream_stream("/t.T/Echo")((b"x" * 10_000 for _ in range(1000)), timeout=30)
    time.sleep(0.2)
    assert sum(len(echo) for echo in calls) == 10_000_000

    assert failure(lambda: unary("Sleeps", timeout=0.3))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert unary("Cancelled") == b"yes", "the server was not told of the deadline"

    endless = channel.unary_stream("/t.T/Endless")(b"", timeout=30)
    for n, message in zip(range(10), endless):
        assert message == b"%d" % n
    endless.cancel()
    assert unary("Cancelled") == b"yes", "the server was not told of the cancellation"

    assert failure(lambda: unary("Huge"))[0] in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)
    assert unary("Unary") == b"", "the connection goes on"

    many = [channel.unary_unary("/t.T/Unary").future(b"%d" % n, timeout=30) for n in range(1000)]
    assert [call.result() for call in many] == [b"%d" % n for n in range(1000)]
    print("all is well")


def refused(address, expected):
    channel = grpc.insecure_channel(address, options=OPTIONS + [("grpc.default_authority", "a.test")])
    code, details = failure(lambda: channel.unary_unary("/t.T/Unary")(b"", timeout=15))
    assert code.name == expected, (code, details)
    print(details)


match sys.argv[1:]:
    case ["server"]:
        serve()
    case ["client", address, *authority]:
        check(address, authority[0] if authority else None)
    case ["refused", address, code]:
        refused(address, code)
