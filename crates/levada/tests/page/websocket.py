"""A server of WebSocket that sends every message back, and a client that checks it: the package `websockets`.

    websocket.py server                       prints its port, and ends with its standard input
    websocket.py client URI [AUTHORITY]       prints "ok", with what was agreed on, or fails

Its calls are those of all versions from 10 on.
"""

import asyncio
import http
import ssl
import sys

import websockets


async def echo(socket):
    async for message in socket:
        await socket.send(message)


def page(first, second):
    """Answers a request that does not ask for WebSocket, so that a browser has a page to begin from."""
    if isinstance(first, str):
        if "upgrade" in second.get("Connection", "").lower():
            return None
        return http.HTTPStatus.OK, [("Content-Type", "text/plain")], b"a page\n"
    if "upgrade" in second.headers.get("Connection", "").lower():
        return None
    return first.respond(http.HTTPStatus.OK, "a page\n")


async def server():
    options = {"subprotocols": ["chat"], "max_size": None, "process_request": page}
    async with websockets.serve(echo, "127.0.0.1", 0, **options) as running:
        print(list(running.sockets)[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def talk(uri, tls, compression):
    options = {"subprotocols": ["other", "chat"], "max_size": None, "compression": compression}
    async with websockets.connect(uri, ssl=tls, **options) as socket:
        assert socket.subprotocol == "chat", socket.subprotocol
        for size in [0, 1, 125, 126, 65_535, 65_536, 2_000_000]:
            for message in [bytes(at * 7 % 256 for at in range(size)), "\N{HEDGEHOG}" * (size // 4)]:
                await socket.send(message)
                assert await socket.recv() == message, size
        # One message of many frames, and pings between them.
        await socket.send([b"abc"] * 500)
        await asyncio.wait_for(await socket.ping(b"there?"), 20)
        assert await socket.recv() == b"abc" * 500
        response = getattr(socket, "response", None)
        headers = response.headers if response else socket.response_headers
        extensions = headers.get("Sec-WebSocket-Extensions", "none").split(";")[0]
    assert socket.close_code == 1000, socket.close_code
    return extensions


async def client(uri, authority=None):
    tls = ssl.create_default_context(cafile=authority) if authority else None
    packed = await asyncio.gather(*(talk(uri, tls, "deflate") for _ in range(10)))
    plain = await talk(uri, tls, None)
    print("ok", *sorted(set(packed)), plain)


asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
