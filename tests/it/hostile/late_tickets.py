"""An HTTPS server on OpenSSL's own library that sends new session tickets after each answer."""

import ctypes, json, socket, sys, threading

cert, key = sys.argv[1], sys.argv[2]
lib = ctypes.CDLL("libssl.so.3")
for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
    getattr(lib, name).restype = ctypes.c_void_p
context = ctypes.c_void_p(lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_server_method())))
assert lib.SSL_CTX_use_certificate_chain_file(context, cert.encode()) == 1
assert lib.SSL_CTX_use_PrivateKey_file(context, key.encode(), 1) == 1


def answer(request, connection):
    method, identity = request.get("method"), request.get("id")
    if method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
    elif method == "tools/list":
        result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": f"connection {connection}"}]}
    else:
        return 404, {"jsonrpc": "2.0", "id": identity, "error": {"code": -32601, "message": "no such method"}}
    return 200, {"jsonrpc": "2.0", "id": identity, "result": {"resultType": "complete", **result}}


def serve(stream, connection):
    ssl = ctypes.c_void_p(lib.SSL_new(context))
    lib.SSL_set_fd(ssl, stream.fileno())
    if lib.SSL_accept(ssl) != 1:
        return
    unread, buffer = b"", ctypes.create_string_buffer(65536)
    while True:
        head, found, body = unread.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if not found or len(body) < length:
            read = lib.SSL_read(ssl, buffer, len(buffer))
            if read <= 0:
                return
            unread += buffer.raw[:read]
            continue
        unread = body[length:]
        status, message = answer(json.loads(body[:length] or b"{}"), connection)
        text = json.dumps(message).encode()
        out = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text
        if lib.SSL_write(ssl, out, len(out)) <= 0:
            return
        # The answer is on its way: these tickets come late.
        for _ in range(2):
            assert lib.SSL_new_session_ticket(ssl) == 1
            assert lib.SSL_do_handshake(ssl) == 1


listener = socket.create_server(("127.0.0.1", 0))
print("port", listener.getsockname()[1], flush=True)
connections = 0
while True:
    stream, _ = listener.accept()
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(stream, connections), daemon=True).start()
    connections += 1
