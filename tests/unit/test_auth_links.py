"""Download links: whom they serve, until when, and what kills them."""

from __future__ import annotations

import base64
import json

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.auth import Links, Pages, Revocations
from gateway.domain.model import Principal
from gateway.errors import NotFound
from gateway.ports import DisabledRow
from gateway.testing.clock import ManualClock

ALICE = Principal("alice", "t1", token_id="token-1", expires_at=1_800_003_600.0)
SECRET = b"a test secret of thirty-two bytes and more"


def dead(links: Links, link: str, who: Principal = ALICE, artifact: str = "a1") -> bool:
    try:
        links.check(link, who, artifact)
    except NotFound:
        return True
    return False


def made(**options: float) -> tuple[Links, ManualClock, Revocations]:
    clock, revocations = ManualClock(), Revocations()
    return Links(clock, revocations=revocations, **options), clock, revocations


def test_it_serves_its_user_and_its_artifact_only() -> None:
    links, _, _ = made()
    link, _ = links.issue(ALICE, "a1")
    assert not dead(links, link)
    assert not dead(links, link, Principal("alice", "t1", token_id="another of hers")), "by her page or by her token"
    assert dead(links, link, artifact="a2")
    for other in (Principal("bob", "t1"), Principal("alice", "t2"), Principal("bob", "t1", frozenset({"admin"})), Principal("", "")):
        assert dead(links, link, other)


def test_it_expires_and_never_outlives_what_it_was_asked_for_with() -> None:
    links, clock, _ = made()
    link, expires = links.issue(ALICE, "a1")
    assert expires == clock.now() + 300
    clock.advance(299.9)
    assert not dead(links, link)
    clock.advance(0.2)
    assert dead(links, link)
    soon = Principal("alice", "t1", token_id="x", expires_at=clock.now() + 10)
    link, expires = links.issue(soon, "a1")
    assert expires == clock.now() + 10
    clock.advance(10)
    assert dead(links, link)


def test_a_clock_that_goes_back_makes_no_link_live_again_for_long() -> None:
    links, clock, _ = made()
    link, _ = links.issue(ALICE, "a1")
    clock.jump_wall(-3600)
    assert dead(links, link), "made in what is now the future"


@pytest.mark.parametrize("how", ["token", "user", "disabled", "disabled and enabled"])
def test_it_dies_with_its_credential(how: str) -> None:
    links, clock, revocations = made()
    link, _ = links.issue(ALICE, "a1")
    other, _ = links.issue(Principal("bob", "t1", token_id="token-2"), "b1")
    now = clock.now()
    if how == "token":
        revocations.revoke_token("token-1", now, now + 3600)
    elif how == "user":
        revocations.revoke_user("t1", "alice", now, now + 3600)
    else:
        row = DisabledRow("t1", "alice", now, "boss")
        revocations.user_changed(row)
        if how == "disabled and enabled":
            row.enabled_at = now
            revocations.user_changed(row)
    assert dead(links, link)
    assert not dead(links, other, Principal("bob", "t1"), "b1")


def test_it_dies_at_the_logout_of_the_page_that_made_it() -> None:
    pages = Pages(SECRET, ManualClock())
    page, other = pages.sessions.issue(ALICE), pages.sessions.issue(ALICE)
    link, _ = pages.issue_link(pages.verify_cookie(page), "a1")
    of_other, _ = pages.issue_link(pages.verify_cookie(other), "a1")
    pages.check_link(link, pages.verify_cookie(page), "a1")
    pages.end(page)
    with pytest.raises(NotFound):
        pages.check_link(link, pages.verify_cookie(other), "a1")
    pages.check_link(of_other, pages.verify_cookie(other), "a1")


def test_no_other_token_is_a_link_and_no_link_is_another_token() -> None:
    clock = ManualClock()
    pages = Pages(SECRET, clock)
    page = pages.sessions.issue(ALICE)
    assert dead(pages.links, page)
    link, _ = pages.issue_link(ALICE, "a1")
    with pytest.raises(Exception, match="not valid"):
        pages.verify_cookie(link)
    again = Pages(SECRET, clock)  # the gateway was started anew
    assert dead(again.links, link)


def test_tampered_links() -> None:
    links, _, _ = made()
    link, _ = links.issue(ALICE, "a1")
    header, body, signature = link.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    for change in ({"artifact": "a2"}, {"sub": "bob"}, {"exp": claims["exp"] + 1000}):
        forged = f"{header}.{part(claims | change)}.{signature}"
        assert dead(links, forged, Principal(str(change.get("sub", "alice")), "t1"), str(change.get("artifact", "a1")))
    for forged in (
        f"{part({'alg': 'none'})}.{body}.", jwt.encode(claims, "x" * 40, algorithm="HS256"), f"{header}.{body}", "", "..", "a" * 9000, link + "a",
    ):  # fmt: skip
        assert dead(links, forged)


@settings(max_examples=200)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_is_taken(at: int, by: int) -> None:
    links, _, _ = made()
    link, _ = links.issue(ALICE, "a1")
    at %= len(link)
    changed = link[:at] + chr(ord(link[at]) ^ by) + link[at + 1 :]
    if not dead(links, changed):
        # the last character of base64 holds a few bits that mean nothing
        assert at == len(link) - 1 and base64.urlsafe_b64decode(changed.split(".")[2] + "=") == base64.urlsafe_b64decode(link.split(".")[2] + "=")
