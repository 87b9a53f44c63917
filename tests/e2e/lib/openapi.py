# SPDX-License-Identifier: MIT
"""openapi.py: compares replies of a daemon with docs/openapi.json.

    api = OpenApi()
    for complaint in api.complaints("POST", "/v1/completions", status, content_type, body): ...

A JSON reply must have the members that its schema describes, no others and none missing. In a stream, the data of each
event, or each line of application/x-ndjson, must agree with `x-event`, which stands next to the schema (OpenAPI 3.1 has
no word for that). `available` is False without the Python package jsonschema (Debian: python3-jsonschema). There are no
complaints then, and note_absence() says so.
"""
import json
import os
import pathlib
import re

try:
    import jsonschema
    available = True
except ImportError:
    available = False

FILE = pathlib.Path(__file__).resolve().parents[3] / "docs/openapi.json"


def note_absence():
    """Without jsonschema a case is skipped, or has failed in CI: then the result is 1."""
    failed = not available and "CI" in os.environ
    if not available:
        print(f"[ RUN      ] openapi\nPython has no jsonschema\n[  {'FAILED ' if failed else 'SKIPPED'} ] openapi", flush=True)
    return int(failed)


class OpenApi:
    def __init__(self):
        self.n_checked = 0
        self.document = json.loads(FILE.read_text())
        self.words = {w for w in words(self.document["components"]) if isinstance(w, str)}
        self.known, self.validators = set(), {}
        self.routes = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", p.replace("{path}", ".+"))), methods) for p, methods in self.document["paths"].items()]

    def validator(self, schema):
        """Made once for each schema: anew they cost more than their use."""
        key = json.dumps(schema)
        if key not in self.validators:
            self.validators[key] = jsonschema.Draft202012Validator({**schema, "components": self.document["components"]})
        return self.validators[key]

    def schemas(self, method, target, status, content_type):
        """Of a whole reply and of an event; None where the document has none."""
        path = target.split("?")[0]
        for pattern, methods in self.routes:
            if pattern.fullmatch(path) and method.lower() in methods:
                replies = methods[method.lower()]["responses"]
                kind = content_type.split(";")[0]
                found = replies.get(str(status), replies["default"])["content"].get(kind, {})
                return found.get("schema"), found.get("x-event")
        return ({"$ref": "#/components/schemas/Error"} if status >= 400 else None), None

    def complaints(self, method, target, status, content_type, body):
        if not available:
            return
        schema, event = self.schemas(method, target, status, content_type)
        if schema is None:
            yield f"{method} {target}: {status} {content_type} is not described"
        elif event and content_type.startswith("application/x-ndjson"):
            for line in body.decode().splitlines():
                yield from self.differences(event, json.loads(line), target)
        elif event:
            for block in body.decode().split("\n\n"):
                data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
                if data:
                    yield from self.differences(event, data[0] if data[0] == "[DONE]" else json.loads(data[0]), target)
        elif content_type.startswith("application/json"):
            yield from self.differences(schema, json.loads(body), target)

    def shape(self, v):
        """What the document can tell values apart by: equal shapes are both right or both wrong."""
        if isinstance(v, dict):
            return tuple((k, self.shape(x)) for k, x in sorted(v.items()))
        if isinstance(v, list):
            return len(v) == 0, frozenset(map(self.shape, v))
        if isinstance(v, str):
            return v if v in self.words else ""
        return v if isinstance(v, bool) or v is None else (type(v), (v > 0) - (v < 0))

    def differences(self, schema, value, target):
        key = id(schema), self.shape(value)  # of a stream's events most have the shape of the one before
        self.n_checked += 1
        if key in self.known:
            return
        self.known.add(key)
        validator = self.validator(schema)
        for e in validator.iter_errors(value):
            why = "; ".join(f"{c.json_path}: {c.message}" for c in e.context) or e.message
            yield f"{target}: openapi.json: {e.json_path}: {why[:1500]} in {json.dumps(value)[:500]}"


def words(schema):
    """The texts that a schema asks for."""
    if isinstance(schema, dict):
        yield from schema.get("enum", []) if isinstance(schema.get("enum"), list) else []
        yield from [schema["const"]] if "const" in schema else []
        for x in schema.values():
            yield from words(x)
    elif isinstance(schema, list):
        for x in schema:
            yield from words(x)
