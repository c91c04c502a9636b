"""A collector of OTLP on the official message types: gRPC and HTTP, each on a free port.

    otlp_receiver.py [--refuse]

Says `grpc URL` and `http URL` once it listens, and then one JSON object a line of each request: its signal, how it came, its headers,
and the message as the official types read it. With `--refuse` it reads nothing and says no, so that it is not asked again.
"""

import argparse
import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

REFUSE = False
SAYING = threading.Lock()


def say(signal: str, transport: str, headers: dict[str, str], message) -> None:
    line = {"signal": signal, "transport": transport, "headers": headers, "message": MessageToDict(message)}
    with SAYING:
        print(json.dumps(line), flush=True)


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        if REFUSE:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        say("traces", "grpc", {key: str(value) for key, value in context.invocation_metadata()}, request)
        return trace_service_pb2.ExportTraceServiceResponse()


class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def Export(self, request, context):
        if REFUSE:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        say("metrics", "grpc", {key: str(value) for key, value in context.invocation_metadata()}, request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kinds = {
        "/v1/traces": ("traces", trace_service_pb2.ExportTraceServiceRequest, trace_service_pb2.ExportTraceServiceResponse),
        "/v1/metrics": ("metrics", metrics_service_pb2.ExportMetricsServiceRequest, metrics_service_pb2.ExportMetricsServiceResponse),
    }

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if REFUSE or self.path not in self.kinds or self.headers["content-type"] != "application/x-protobuf":
            self.answer(400, b"")
            return
        signal, request, response = self.kinds[self.path]
        message = request()
        message.ParseFromString(body)
        say(signal, "http", {key.lower(): value for key, value in self.headers.items()}, message)
        self.answer(200, response().SerializeToString())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


def main() -> None:
    global REFUSE
    parser = argparse.ArgumentParser()
    parser.add_argument("--refuse", action="store_true")
    REFUSE = parser.parse_args().refuse
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    http = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    print(f"grpc http://127.0.0.1:{port}", flush=True)
    print(f"http http://127.0.0.1:{http.server_address[1]}", flush=True)
    http.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
