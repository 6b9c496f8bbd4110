"""A receiver believes nothing that Placet has not signed, just so, and just now."""

from __future__ import annotations

import base64
from email.message import Message

import pytest

from placet.webhooks import WebhookRefused, key_of, sign, verify

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 24).decode()
BODY = b'{"id":"e","type":"dev.placet.approval.requested","data":{}}'
NOW = 1_900_000_000


def headers(*secrets: str, **changed: str) -> dict[str, str]:
    signed = sign(secrets or (SECRET,), "0199b0c0-0000-7000-8000-000000000001", NOW, BODY)
    return signed | {f"webhook-{name}": value for name, value in changed.items()}


def test_the_published_example_of_the_format_is_signed_alike() -> None:
    secret, message_id, body = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
    )
    signed = sign([secret], message_id, 1614265330, body)
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == signed["webhook-signature"]
    assert {"test": 2432232314} == verify(signed, body, secret, now=1614265330).event


def test_what_is_signed_is_told_with_its_id_and_time() -> None:
    sent = {name.title(): value for name, value in headers().items()}
    received = Message()
    for name, value in sent.items():
        received[name] = value
    for shape in (sent, list(sent.items()), received):
        message = verify(shape, BODY, SECRET, now=NOW + 299)
        assert ("0199b0c0-0000-7000-8000-000000000001", NOW) == (message.id, message.timestamp)
        assert "dev.placet.approval.requested" == message.event["type"]


def test_while_secrets_are_rotated_each_side_may_have_both_or_one() -> None:
    for sender in ([SECRET], [OTHER], [SECRET, OTHER]):
        assert verify(headers(*sender), BODY, [SECRET, OTHER], now=NOW)
    assert verify(headers(SECRET, OTHER), BODY, OTHER, now=NOW)
    with pytest.raises(WebhookRefused):
        verify(headers(SECRET), BODY, OTHER, now=NOW)


SIGNATURE = headers()["webhook-signature"]


@pytest.mark.parametrize(
    ("changed", "body", "now"),
    [
        ({}, BODY + b" ", NOW),
        ({}, b"", NOW),
        ({"id": "another"}, BODY, NOW),
        ({"timestamp": str(NOW + 1)}, BODY, NOW),
        ({}, BODY, NOW + 301),
        ({}, BODY, NOW - 301),
        ({"timestamp": "nan"}, BODY, NOW),
        ({"timestamp": "-1"}, BODY, NOW),
        ({"timestamp": "\uff19" * 10}, BODY, NOW),
        ({"timestamp": "9" * 400}, BODY, NOW),
        ({"timestamp": ""}, BODY, NOW),
        ({"id": ""}, BODY, NOW),
        ({"signature": ""}, BODY, NOW),
        ({"signature": "v1,"}, BODY, NOW),
        ({"signature": "v1"}, BODY, NOW),
        ({"signature": SIGNATURE.removeprefix("v1,")}, BODY, NOW),
        ({"signature": SIGNATURE.replace("v1,", "v1a,")}, BODY, NOW),
        ({"signature": "v1,√"}, BODY, NOW),
        ({"signature": "\ud800"}, BODY, NOW),
        ({"id": "\ud800"}, BODY, NOW),
        ({"signature": " ".join(["v1,AAAA"] * 33)}, BODY, NOW),
        ({"signature": SIGNATURE[:-4]}, BODY, NOW),
    ],
)
def test_what_is_forged_changed_or_old_is_refused(changed: dict[str, str], body: bytes, now: int) -> None:
    with pytest.raises(WebhookRefused):
        verify(headers(**changed), body, SECRET, now=now)


def test_headers_that_are_missing_or_there_twice_are_refused() -> None:
    for name in headers():
        rest = {key: value for key, value in headers().items() if key != name}
        with pytest.raises(WebhookRefused, match="missing"):
            verify(rest, BODY, SECRET, now=NOW)
        with pytest.raises(WebhookRefused, match="twice"):
            verify([*headers().items(), (name.title(), "x")], BODY, SECRET, now=NOW)


@pytest.mark.parametrize("body", [b"[]", b"not json", b"\xff", b"1"])
def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(WebhookRefused, match="JSON"):
        verify(sign([SECRET], "i", NOW, body), body, SECRET, now=NOW)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_AAAA", SECRET[6:], "whsec_!" + SECRET[7:], "whsec_" + "A" * 200]
)
def test_a_secret_that_is_none_is_not_taken_for_one(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes") as caught:
        key_of(secret)
    assert not secret or secret not in str(caught.value) or secret == "whsec_"


def test_no_secret_and_text_instead_of_bytes_verify_nothing() -> None:
    with pytest.raises(WebhookRefused):
        verify(headers(), BODY, [], now=NOW)
    with pytest.raises(TypeError):
        verify(headers(), BODY.decode(), SECRET, now=NOW)  # type: ignore[arg-type]
