#!/usr/bin/env python3
"""proxy.py FROM TO DELAY RATE LOSS CUT: a slow network between ranks. What is sent to port FROM of this host
goes to port TO, and back, DELAY seconds later, at most RATE bytes in a second each way. LOSS of all chunks
(0.01: one of a hundred) come a quarter of a second later, with all that is behind them, as packets that are
sent again do. CUT seconds after it was made a connection is cut off (0: never), at a time that is printed."""
import asyncio
import random
import socket
import struct
import sys
import time

CHUNK = 16384
source, target = int(sys.argv[1]), int(sys.argv[2])
delay, rate, loss, cut = map(float, sys.argv[3:7])
chance = random.Random(1)


async def read(reader, queue):
    """Puts chunks into the queue, with the times at which they arrive."""
    loop, free = asyncio.get_running_loop(), 0
    while True:
        data = await reader.read(CHUNK)
        free = max(free, loop.time()) + len(data) / rate
        free += 0.25 if chance.random() < loss else 0
        await queue.put((free + delay, data))
        if not data:
            return


async def write(writer, queue):
    loop = asyncio.get_running_loop()
    while True:
        when, data = await queue.get()
        await asyncio.sleep(when - loop.time())
        if not data:
            writer.write_eof()
            return
        writer.write(data)
        await writer.drain()


def reset(writer):
    """Ends a connection as a router does that has forgotten it: without what is still to be sent."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def connected(reader, writer):
    try:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
    except OSError:
        return reset(writer)
    for one in (writer, other_writer):
        one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tasks = []
    for a, b in ((reader, other_writer), (other_reader, writer)):
        queue = asyncio.Queue(64 + int(rate * delay / CHUNK))
        tasks += [asyncio.ensure_future(read(a, queue)), asyncio.ensure_future(write(b, queue))]
    done, left = await asyncio.wait(tasks, timeout=cut or None, return_when=asyncio.FIRST_EXCEPTION)
    if left:
        print(int(time.time()), flush=True)
    for task in left:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for one in (writer, other_writer):
        reset(one) if left else one.close()


async def main():
    server = await asyncio.start_server(connected, "127.0.0.1", source)
    async with server:
        await server.serve_forever()


asyncio.run(main())
