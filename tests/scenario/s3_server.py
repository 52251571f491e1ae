#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A server of one object with S3's signatures, for scenario_web_servers: s3_server.py OBJECT KEYS READY

KEYS: lines of ID SECRET TOKEN (- for none) STATE (valid or expired), read again for each request. The signatures are
computed by botocore, which is the authority here. READY gets the port. Every path is OBJECT."""
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

OBJECT, KEYS, READY = sys.argv[1:4]
AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?"
                           r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$")


def refusal(request):
    """The code of the error that S3 would answer with; None: the request is right."""
    given = AUTHORIZATION.match(request.headers.get("Authorization", ""))
    if not given:
        return "AccessDenied"
    key, day, region, names, signature = given.groups()
    with open(KEYS, encoding="ascii") as file:
        known = {line.split()[0]: line.split() for line in file if line.strip()}
    if key not in known:
        return "InvalidAccessKeyId"
    _, secret, token, state = known[key]
    if request.headers.get("x-amz-security-token", "-") != token:
        return "InvalidToken"
    if state != "valid":
        return "ExpiredToken"
    names = names.split(";")
    if "host" not in names or "x-amz-content-sha256" not in names or "x-amz-date" not in names:
        return "SignatureDoesNotMatch"
    signed = AWSRequest(request.command, f"http://{request.headers['Host']}{request.path}",
                        headers={name: request.headers.get(name, "") for name in names})
    signed.context["timestamp"] = request.headers["x-amz-date"]
    auth = S3SigV4Auth(Credentials(key, secret), "s3", region)
    text = auth.string_to_sign(signed, auth.canonical_request(signed))
    right = day == request.headers["x-amz-date"][:8] and auth.signature(text, signed) == signature
    return None if right else "SignatureDoesNotMatch"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 20

    def do_GET(self):
        code = refusal(self)
        size = os.path.getsize(OBJECT)
        ranged = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        if code or not ranged:
            body = f"<Error><Code>{code}</Code></Error>".encode()
            self.send_response(403)
        else:
            first, last = int(ranged[1]), min(int(ranged[2]), size - 1)
            with open(OBJECT, "rb") as file:
                file.seek(first)
                body = file.read(last - first + 1)
            self.send_response(206)
            self.send_header("ETag", '"0123456789abcdef-1"')
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(READY + ".new", "w", encoding="ascii") as ready:
    ready.write(str(server.server_port))
os.rename(READY + ".new", READY)
server.serve_forever()
