"""A client of HTTP/3 by aioquic: `client.py PORT AUTHORITY.pem CASE` ends with 0 if the case went as it says."""

import asyncio
import os
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnectionId
from aioquic.quic.events import ConnectionTerminated, StreamReset

PORT, AUTHORITY = int(sys.argv[1]), sys.argv[2]
BODY = bytes(at % 251 for at in range(3_000_000))
CONNECTION_ID_LIMIT_ERROR = 9


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.asked = {}
        self.code = None

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.code = event.error_code
            self.fail(self.asked.values(), f"closed: {event}")
        if isinstance(event, StreamReset) and event.stream_id in self.asked:
            self.fail([self.asked[event.stream_id]], f"reset: {event}")
        for got in self.http.handle_event(event):
            if isinstance(got, (HeadersReceived, DataReceived)):
                done, head, body = self.asked[got.stream_id]
                if isinstance(got, HeadersReceived):
                    head.extend(got.headers)
                else:
                    body.extend(got.data)
                if got.stream_ended and not done.done():
                    done.set_result((int(dict(head)[b":status"]), bytes(body)))

    @staticmethod
    def fail(requests, why):
        for done, _, _ in requests:
            if not done.done():
                done.set_exception(RuntimeError(why))

    def begin(self, path, method=b"GET", body=None):
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.asked[stream] = (done, [], bytearray())
        names = (b":method", b":scheme", b":authority", b":path")
        head = list(zip(names, (method, b"https", b"a.test", path)))
        self.http.send_headers(stream, head, end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return asyncio.wait_for(done, 60)

    async def get(self, path=b"/body"):
        status, body = await self.begin(path)
        assert status == 200, status
        assert path != b"/body" or body == BODY, len(body)


def configured(**more):
    config = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="a.test", **more)
    config.load_verify_locations(AUTHORITY)
    return config


def client(config=None, **more):
    return connect("127.0.0.1", PORT, configuration=config or configured(), create_protocol=Client, **more)


async def transfer():
    async with client() as node:
        await node.get()
        await asyncio.gather(*[node.get(b"/small") for _ in range(100)])
        status, _ = await node.begin(b"/up", b"POST", BODY[:300_000])
        assert status == 200, status


async def version_negotiation():
    versions = configured().supported_versions
    async with client(configured(supported_versions=[0x1A2A3A4A, *versions])) as node:
        await node.get(b"/small")


async def retry():
    async with client() as node:
        await node.get(b"/small")
        assert node._quic._retry_count == 1


async def resumption():
    tickets = []
    async with client(session_ticket_handler=tickets.append) as node:
        await node.get(b"/small")
    for accepted in (True, False):
        config = configured(session_ticket=tickets[0])
        async with client(config, wait_connected=False) as node:
            if accepted:
                early = node.begin(b"/small")
            node.transmit()
            await node.wait_connected()
            tls = node._quic.tls
            assert (tls.session_resumed, tls.early_data_accepted) == (accepted, accepted)
            if accepted:
                assert (await early)[0] == 200


async def key_update():
    async with client() as node:
        for _ in range(3):
            await node.get(b"/small")
            node.request_key_update()
        await node.get()


async def migration():
    async with client() as node:
        asked = asyncio.ensure_future(node.get())
        # Once by a NAT that forgets, and once as a telephone that knows of its move.
        for knows in (False, True):
            while not next(iter(node.asked.values()), (0, 0, b""))[2]:
                await asyncio.sleep(0.001)
            assert not asked.done(), "the body ended before the move"
            loop = asyncio.get_running_loop()
            transport = node._transport
            await loop.create_datagram_endpoint(lambda: node, local_addr=("::", 0))
            transport.close()
            if knows:
                node.change_connection_id()
            node._quic.send_ping(id(transport))
            node.transmit()
        await asked


async def connection_id_flood():
    async with client() as node:
        await node.get(b"/small")
        quic = node._quic
        for _ in range(100):
            number = quic._host_cid_seq
            quic._host_cid_seq += 1
            quic._host_cids.append(QuicConnectionId(os.urandom(8), number, os.urandom(16)))
        node.transmit()
        await asyncio.wait_for(node.wait_closed(), 30)
        assert node.code == CONNECTION_ID_LIMIT_ERROR, node.code


async def retirements():
    async with client() as node:
        for _ in range(1000):
            while not node._quic._peer_cid_available and node.code is None:
                await node.ping()
            assert node.code is None, node.code
            node.change_connection_id()
            node.transmit()
        await node.get(b"/small")


asyncio.run(globals()[sys.argv[3]]())
