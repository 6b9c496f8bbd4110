"""The programs of docs/callbacks.md believe what Placet has signed, and nothing else."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

from placet.webhooks import sign
from tests.docs.snippets import blocks
from tests.toolchain import need, run

SECRET, OTHER = ("whsec_" + base64.b64encode(letter * 32).decode() for letter in (b"k", b"o"))
BODY = '{"id":"e","title":"Größe"}'


def program(name: str) -> str:
    return next(block.text for block in blocks("docs/callbacks.md") if block.file == name)


def signed(*secrets: str, seconds: int = 0) -> dict[str, str]:
    return sign(secrets, "message", int(time.time()) + seconds, BODY.encode())


def cases() -> list[dict[str, object]]:
    """What is sent, and whether it is to be believed."""
    good = signed(SECRET)
    return [
        {"headers": headers, "body": body, "believed": believed}
        for headers, body, believed in (
            (good, BODY, True),
            (signed(OTHER, SECRET), BODY, True),
            (signed(OTHER), BODY, False),
            (good, BODY + " ", False),
            (good | {"webhook-id": "another"}, BODY, False),
            (good | {"webhook-timestamp": "x"}, BODY, False),
            (good | {"webhook-signature": "v1,"}, BODY, False),
            (signed(SECRET, seconds=-400), BODY, False),
            (signed(SECRET, seconds=400), BODY, False),
            ({}, BODY, False),
        )
    ]


def test_the_program_of_node_believes_what_is_signed_just_now(tmp_path: Path) -> None:
    need("node --version")
    (tmp_path / "verify.mjs").write_text(program("verify.mjs"), encoding="utf-8")
    (tmp_path / "cases.json").write_text(json.dumps(cases()), encoding="utf-8")
    (tmp_path / "main.mjs").write_text(
        f"""
import {{ readFileSync }} from "node:fs";
import {{ verify }} from "./verify.mjs";
for (const {{ headers, body, believed }} of JSON.parse(readFileSync("cases.json"))) {{
  let found = true;
  try {{ verify(headers, Buffer.from(body), ["{SECRET}"]); }} catch {{ found = false; }}
  if (found !== believed) throw new Error(JSON.stringify([headers, body]));
}}
""",
        encoding="utf-8",
    )
    run("node", "main.mjs", folder=tmp_path)


def test_the_program_of_go_believes_what_is_signed_just_now(tmp_path: Path) -> None:
    need("go version")
    (tmp_path / "go.mod").write_text("module webhook\n\ngo 1.26\n", encoding="utf-8")
    (tmp_path / "verify.go").write_text(program("verify.go"), encoding="utf-8")
    (tmp_path / "cases.json").write_text(json.dumps(cases()), encoding="utf-8")
    (tmp_path / "verify_test.go").write_text(
        """package webhook

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
)

func TestVerify(t *testing.T) {
	var cases []struct {
		Headers  map[string]string
		Body     string
		Believed bool
	}
	text, _ := os.ReadFile("cases.json")
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, each := range cases {
		headers := http.Header{}
		for name, value := range each.Headers {
			headers.Set(name, value)
		}
		_, err := Verify(headers, []byte(each.Body), []string{"SECRET"})
		if (err == nil) != each.Believed {
			t.Error(each, err)
		}
	}
}
""".replace("SECRET", SECRET),
        encoding="utf-8",
    )
    run("go", "test", ".", folder=tmp_path)
