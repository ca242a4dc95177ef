"""Tickets work once; page sessions slide, end, and are no API tokens."""

from __future__ import annotations

from dataclasses import replace

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.auth import AuthSettings, TokenVerifier
from gateway.auth.pages import PAGE_MAX_S, PAGE_S, Pages, PageSessions, Tickets
from gateway.auth.revocation import Revocation
from gateway.domain.model import Principal
from gateway.errors import QuotaExceeded, Unauthenticated, UserDisabled
from gateway.ports import DisabledRow
from gateway.testing.clock import ManualClock

NOW = 1_800_000_000.0
SECRET = b"\x01" * 32
ALICE = Principal("alice", "t1", frozenset({"user", "admin"}), frozenset({"execute"}))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(now=NOW)


@pytest.fixture
def pages(clock: ManualClock) -> Pages:
    return Pages(SECRET, clock)


def test_a_ticket_works_once(pages: Pages) -> None:
    ticket, expires = pages.issue_ticket(ALICE, "login")
    assert expires == NOW + 600
    value, principal = pages.redeem(ticket, "login")
    assert (principal.user, principal.tenant, principal.roles, principal.scopes) == (
        ALICE.user,
        ALICE.tenant,
        ALICE.roles,
        ALICE.scopes,
    )
    assert pages.verify_cookie(value) == principal
    with pytest.raises(Unauthenticated):
        pages.redeem(ticket, "login")


def test_the_wrong_purpose_uses_a_ticket_up(pages: Pages) -> None:
    ticket, expires = pages.issue_ticket(ALICE, "attach")
    assert expires == NOW + 60
    for purpose in ("login", "attach"):
        with pytest.raises(Unauthenticated):
            pages.redeem(ticket, purpose)


def test_a_ticket_expires(pages: Pages, clock: ManualClock) -> None:
    ticket, _ = pages.issue_ticket(ALICE, "login")
    clock.advance(600)
    with pytest.raises(Unauthenticated):
        pages.redeem(ticket, "login")


def test_nothing_outlives_what_it_was_made_from(pages: Pages, clock: ManualClock) -> None:
    short = Principal("alice", "t1", expires_at=NOW + 100)
    ticket, expires = pages.issue_ticket(short, "login")
    assert expires == NOW + 100
    value, principal = pages.redeem(ticket, "login")
    assert principal.expires_at == NOW + 100
    clock.advance(99)
    assert pages.sessions.renew(value) is None
    clock.advance(1)
    with pytest.raises(Unauthenticated):
        pages.verify_cookie(value)


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_other_text_is_no_ticket_and_no_session(text: str) -> None:
    clock = ManualClock(now=NOW)
    pages = Pages(SECRET, clock)
    pages.issue_ticket(ALICE, "login")
    with pytest.raises(Unauthenticated):
        pages.redeem(text, "login")
    with pytest.raises(Unauthenticated):
        pages.verify_cookie(text)
    pages.end(text)
    assert len(pages.tickets) == 1


def test_tickets_are_counted(clock: ManualClock) -> None:
    tickets = Tickets(clock, most=5, most_a_user=3)
    for _ in range(3):
        tickets.issue(ALICE, "attach")
    with pytest.raises(QuotaExceeded):
        tickets.issue(ALICE, "attach")
    for user in ("b", "c"):
        tickets.issue(Principal(user, "t1"), "attach")
    with pytest.raises(QuotaExceeded):
        tickets.issue(Principal("d", "t1"), "attach")
    clock.advance(60)
    tickets.issue(ALICE, "attach")
    assert len(tickets) == 1


def test_a_session_slides_up_to_its_end(pages: Pages, clock: ManualClock) -> None:
    value = pages.sessions.issue(ALICE)
    assert pages.sessions.renew(value) is None
    first = pages.verify_cookie(value)
    end = NOW + PAGE_MAX_S
    while True:
        clock.advance(PAGE_S / 2 + 1)
        if clock.now() >= end:
            break
        renewed = pages.sessions.renew(value)
        if renewed is None:
            break
        value = renewed
        assert pages.verify_cookie(value).token_id == first.token_id
        assert pages.verify_cookie(value).expires_at <= end
    assert pages.verify_cookie(value).expires_at == end
    clock.advance(end - clock.now())
    for attempt in (pages.verify_cookie, pages.sessions.renew):
        with pytest.raises(Unauthenticated):
            attempt(value)


def test_logout_ends_a_session_and_its_renewals(pages: Pages, clock: ManualClock) -> None:
    value = pages.sessions.issue(ALICE)
    other = pages.sessions.issue(ALICE)
    clock.advance(PAGE_S * 0.6)
    renewed = pages.sessions.renew(value)
    assert renewed is not None
    pages.end(value)
    for each in (value, renewed):
        with pytest.raises(Unauthenticated):
            pages.verify_cookie(each)
    pages.end(value)
    assert pages.verify_cookie(other).user == "alice"


def test_revoking_the_token_or_the_user_reaches_sessions_and_tickets(pages: Pages, clock: ManualClock) -> None:
    parent = Principal("alice", "t1", token_id="parent")
    value = pages.sessions.issue(parent)
    waiting, _ = pages.issue_ticket(parent, "login")
    pages.sessions.revocations.revoke_token("parent", NOW, NOW + 10**6)
    with pytest.raises(Unauthenticated):
        pages.verify_cookie(value)
    with pytest.raises(Unauthenticated):
        pages.redeem(waiting, "login")
    value = pages.sessions.issue(ALICE)
    waiting, _ = pages.issue_ticket(ALICE, "login")
    bobs, _ = pages.issue_ticket(Principal("bob", "t1"), "login")
    pages.sessions.revocations.revoke_user("t1", "alice", NOW, NOW + 10**6)
    for attempt in (lambda: pages.verify_cookie(value), lambda: pages.redeem(waiting, "login")):
        with pytest.raises(Unauthenticated):
            attempt()
    assert pages.redeem(bobs, "login")[1].user == "bob"
    clock.advance(1)
    assert pages.verify_cookie(pages.sessions.issue(ALICE)).user == "alice"


def test_a_cookie_is_no_token_and_a_token_no_cookie(pages: Pages, clock: ManualClock) -> None:
    settings = AuthSettings(secret=SECRET)
    with pytest.raises(Unauthenticated):
        TokenVerifier.from_settings(settings, clock).verify(pages.sessions.issue(ALICE))
    for audience in ("sandglass", "sandglass-page"):
        alike = AuthSettings(secret=SECRET, issuer="sandglass-page", audience=audience)
        with pytest.raises(Unauthenticated):
            pages.verify_cookie(alike.issue_dev_token("alice", "t1", ["user"], 60, NOW))
        with pytest.raises(Unauthenticated):
            TokenVerifier.from_settings(alike, clock).verify(pages.sessions.issue(ALICE))
    other = PageSessions(b"\x02" * 32, clock)
    with pytest.raises(Unauthenticated):
        pages.verify_cookie(other.issue(ALICE))


def test_no_secret_is_in_the_cookie(pages: Pages) -> None:
    claims = jwt.decode(pages.sessions.issue(ALICE), options={"verify_signature": False})
    assert set(claims) == {"iss", "aud", "sub", "tenant", "roles", "scope", "iat", "exp", "until", "origin", "jti"}


def test_a_disabled_user_is_refused_with_whatever_credential_and_pages_from_before_stay_ended(pages: Pages, clock: ManualClock) -> None:
    revocations = pages.sessions.revocations
    settings = AuthSettings(secret=SECRET)
    verifier = TokenVerifier.from_settings(settings, clock, revocations=revocations)
    told: list[Revocation] = []
    revocations.listeners.append(told.append)
    token, page = settings.issue_dev_token("alice", "t1", ["user"], 10**6, NOW), pages.sessions.issue(ALICE)
    waiting, _ = pages.issue_ticket(ALICE, "login")
    clock.advance(1)
    row = DisabledRow("t1", "alice", clock.now(), "boss")
    revocations.user_changed(row)
    assert len(told) == 1 and told[0].concerns(ALICE, clock.now() + 10**6)
    assert not told[0].concerns(Principal("alice", "t2"), None)
    clock.advance(1)
    for attempt in (
        lambda: verifier.verify(token), lambda: verifier.verify(settings.issue_dev_token("alice", "t1", ["user"], 60, clock.now())),
        lambda: pages.verify_cookie(page), lambda: pages.renew(page), lambda: pages.verify_cookie(pages.sessions.issue(ALICE)),
    ):  # fmt: skip
        with pytest.raises(UserDisabled):
            attempt()
    assert verifier.verify(settings.issue_dev_token("alice", "t2", ["user"], 60, clock.now())).user == "alice"
    revocations.user_changed(replace(row, enabled_at=clock.now()))
    assert len(told) == 1 and verifier.verify(token).user == "alice"
    for gone in (lambda: pages.verify_cookie(page), lambda: pages.renew(page), lambda: pages.redeem(waiting, "login")):
        with pytest.raises(Unauthenticated):
            gone()
    assert pages.verify_cookie(pages.sessions.issue(ALICE)).user == "alice"
