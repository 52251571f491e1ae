#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A server with S3's signatures, for scenario_web_servers and scenario_push: s3_server.py OBJECT KEYS READY

KEYS: lines of ID SECRET TOKEN (- for none) STATE (valid or expired), read again for each request. The signatures are
computed by botocore, which is the authority here. READY gets the port. Every path is OBJECT; if that is a directory, a
path is a file below it, which can be written, in parts, too. OBJECT/.log then has a line for each write, and while
OBJECT/.full exists, the store is full. When OBJECT/.forget exists, it forgets uploads that are not complete; with
OBJECT/.lose, the answer to an upload that it completes is lost, or does not come if that file has a text; with OBJECT/.endless, it refuses a PUT with a text
that has no end. The first line "METHOD STATUS CODE" in OBJECT/.once is an answer to such a request."""
import hashlib
import os
import re
import sys
import threading
import urllib.parse
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
    uploads = {}  # by identifier: parts by number
    lock = threading.Lock()

    def handle_expect_100(self):
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def path_of(self):
        """The file, and its settings."""
        path, _, query = self.path.partition("?")
        place = os.path.normpath(OBJECT + "/" + urllib.parse.unquote(path)) if os.path.isdir(OBJECT) else OBJECT
        return place, dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.close_connection = True
        self.answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def forced(self):
        """Whether the answer was one of OBJECT/.once."""
        with self.lock:
            if not os.path.exists(OBJECT + "/.once"):
                return False
            with open(OBJECT + "/.once", encoding="ascii") as file:
                lines = file.read().splitlines()
            line = next((line for line in lines if line.startswith(self.command + " ")), None)
            if not line:
                return False
            lines.remove(line)
            with open(OBJECT + "/.once", "w", encoding="ascii") as file:
                file.write("".join(f"{line}\n" for line in lines))
        self.fail(int(line.split()[1]), line.split()[2])
        return True

    def talk(self):
        self.close_connection = True
        self.send_response(403)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            pass

    def do_GET(self):
        if self.forced():
            return None
        code, (place, _) = refusal(self), self.path_of()
        ranged = re.match(r"bytes=(\d+)-(\d+)$", self.headers.get("Range", ""))
        if code or (place == OBJECT and not ranged):
            return self.fail(403, code)
        if not os.path.isfile(place):
            return self.fail(404, "NoSuchKey")
        size = os.path.getsize(place)
        tag = '"0123456789abcdef-1"' if place == OBJECT else f'"{os.stat(place).st_mtime_ns:x}-{size}"'
        first, last = (int(ranged[1]), min(int(ranged[2]), size - 1)) if ranged else (0, size - 1)
        with open(place, "rb") as file:
            file.seek(first)
            body = file.read(last - first + 1)
        fields = {"Content_Range": f"bytes {first}-{last}/{size}"} if ranged else {}
        return self.answer(206 if ranged else 200, body, ETag=tag, **fields)

    do_HEAD = do_GET

    def note(self, size):
        with self.lock, open(OBJECT + "/.log", "a", encoding="ascii") as log:
            log.write(f"{self.command} {self.path} {size}\n")

    def body_of(self):
        """The body, or None: the answer was an error."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if hashlib.sha256(body).hexdigest() != self.headers.get("x-amz-content-sha256"):
            return self.fail(400, "XAmzContentSHA256Mismatch")
        if self.forced():
            return None
        if self.command == "PUT" and os.path.exists(OBJECT + "/.endless"):
            return self.talk()
        if os.path.exists(OBJECT + "/.full"):
            return self.fail(507, "InsufficientStorage")
        self.note(len(body))
        return body

    def store(self, place, body):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place + ".new", "wb") as file:
            file.write(body)
        os.rename(place + ".new", place)

    def do_PUT(self):
        code, (place, query) = refusal(self), self.path_of()
        if code or place == OBJECT:
            return self.fail(403, code)
        body = self.body_of()
        if body is None:
            return None
        if os.path.exists(OBJECT + "/.forget"):
            os.unlink(OBJECT + "/.forget")
            self.uploads.clear()
        if "uploadId" not in query:
            self.store(place, body)
            return self.answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')
        with self.lock:
            parts = self.uploads.get(query["uploadId"])
        if parts is None:
            return self.fail(404, "NoSuchUpload")
        parts[int(query["partNumber"])] = body
        return self.answer(200, ETag=f'"{hashlib.md5(body).hexdigest()}"')

    def do_POST(self):
        code, (place, query) = refusal(self), self.path_of()
        if code:
            return self.fail(403, code)
        body = self.body_of()
        if body is None:
            return None
        if "uploads" in query:
            name = f"up/load+{len(self.uploads)}=="
            self.uploads[name] = {}
            return self.answer(200, f"<Result><UploadId>{name}</UploadId></Result>".encode())
        parts = self.uploads.pop(query["uploadId"], None)
        if parts is None:
            return self.fail(404, "NoSuchUpload")
        wanted = re.findall(rb"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>", body)
        have = [(b"%d" % n, f'"{hashlib.md5(parts[n]).hexdigest()}"'.encode()) for n in sorted(parts)]
        if wanted != have:  # S3 says that after the head of its answer
            return self.answer(200, b"<Error><Code>InvalidPart</Code></Error>")
        self.store(place, b"".join(parts[n] for n in sorted(parts)))
        if os.path.exists(OBJECT + "/.lose"):
            silent = os.path.getsize(OBJECT + "/.lose") > 0
            os.unlink(OBJECT + "/.lose")
            self.close_connection = True
            if silent:
                threading.Event().wait()
            return None
        return self.answer(200, b"<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(READY + ".new", "w", encoding="ascii") as ready:
    ready.write(str(server.server_port))
os.rename(READY + ".new", READY)
server.serve_forever()
