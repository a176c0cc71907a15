"""A token speaks for its pod only if the cluster signed it, for us, and it holds now."""

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from attend_parts import AUDIENCE, GivenKeys, TokenIssuer, claims
from pipelineserve_operator.attend.keys import KeysUnavailableError, SigningKey
from pipelineserve_operator.attend.refusals import Refusal, RefusedError
from pipelineserve_operator.attend.tokens import LEEWAY_S, PodIdentity, TokenChecker

CLUSTER = TokenIssuer()


class NoKeys:
    """Of a cluster that does not answer."""

    async def find(self, key_id: str) -> SigningKey | None:
        """Fail."""
        raise KeysUnavailableError(f"no answer for {key_id}")


def check(token: str, issuer: TokenIssuer = CLUSTER) -> PodIdentity:
    checker = TokenChecker(GivenKeys(issuer), AUDIENCE, time.time)
    return asyncio.run(checker.check(f"Bearer {token}"))


def refusal_of(token: str) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        check(token)
    # Short texts of a test may be in any message by chance.
    assert len(token) < 20 or token not in str(caught.value)
    return caught.value


def segment(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_good_token_names_its_pod_and_when_it_ends() -> None:
    ends_at_s = int(time.time()) + 600
    assert check(CLUSTER.token({"exp": ends_at_s})) == PodIdentity(
        namespace="models",
        service_account="small-pods",
        pod_name="small-r0-e0-0",
        pod_uid="pod-0",
        ends_at_s=ends_at_s + LEEWAY_S,
    )


@pytest.mark.parametrize(
    ("changes", "refusal", "named"),
    [
        ({"aud": ["https://kubernetes.default.svc"]}, Refusal.OTHER_AUDIENCE, AUDIENCE),
        ({"aud": "pipelineserve.de"}, Refusal.OTHER_AUDIENCE, AUDIENCE),
        ({"iss": "https://elsewhere"}, Refusal.OTHER_ISSUER, "kubernetes.default.svc"),
        ({"exp": int(time.time()) - 60}, Refusal.EXPIRED, "expired"),
        ({"nbf": int(time.time()) + 600}, Refusal.NOT_YET_VALID, "not valid yet"),
        ({"iat": int(time.time()) + 600}, Refusal.NOT_YET_VALID, "not valid yet"),
    ],
)
def test_a_token_for_another_place_or_time_is_refused(
    changes: Mapping[str, Any], refusal: Refusal, named: str
) -> None:
    error = refusal_of(CLUSTER.token(changes))
    assert error.refusal is refusal
    assert named in str(error)


@pytest.mark.parametrize(
    "path",
    [
        *("exp", "nbf", "iat", "iss", "aud", "sub", "kubernetes.io", "kubernetes.io/namespace"),
        *("kubernetes.io/pod", "kubernetes.io/pod/name", "kubernetes.io/pod/uid"),
        *("kubernetes.io/serviceaccount", "kubernetes.io/serviceaccount/name"),
    ],
)
def test_a_token_without_a_claim_is_refused_by_the_claim_s_name(path: str) -> None:
    error = refusal_of(CLUSTER.token({path: ...}))
    assert error.refusal is Refusal.MISSING_CLAIM
    assert path.replace("/", ".") in str(error)


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 10**400},
        {"nbf": True},
        {"kubernetes.io": "models"},
        {"kubernetes.io/pod/uid": ""},
        {"kubernetes.io/pod/uid": 5},
        {"kubernetes.io/pod/name": "x" * 300},
        {"sub": "system:serviceaccount:models:other"},
    ],
    ids=str,
)
def test_a_claim_that_is_no_such_claim_is_refused(changes: Mapping[str, Any]) -> None:
    assert refusal_of(CLUSTER.token(changes)).refusal is Refusal.MISSING_CLAIM


def test_an_unsigned_token_is_refused() -> None:
    header = segment({"alg": "none", "kid": CLUSTER.key_id})
    unsigned = f"{header}.{segment(claims({}))}."
    assert refusal_of(unsigned).refusal is Refusal.OTHER_ALGORITHM


def test_a_token_whose_signature_was_cut_off_is_refused() -> None:
    cut = CLUSTER.token().rpartition(".")[0] + "."
    assert refusal_of(cut).refusal in (Refusal.BAD_SIGNATURE, Refusal.NOT_A_TOKEN)


def test_a_public_key_does_not_serve_as_a_shared_secret() -> None:
    public = CLUSTER.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    said = f"{segment({'alg': 'HS256', 'kid': CLUSTER.key_id})}.{segment(claims({}))}"
    signature = hmac.digest(public, said.encode(), "sha256")
    forged = f"{said}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert refusal_of(forged).refusal is Refusal.OTHER_ALGORITHM


def test_another_algorithm_than_its_key_s_is_refused() -> None:
    key = rsa.generate_private_key(65537, 2048)
    forged = jwt.encode(claims({}), key, "RS256", {"kid": CLUSTER.key_id})
    assert refusal_of(forged).refusal is Refusal.OTHER_ALGORITHM


def test_another_cluster_s_token_with_the_same_key_id_is_refused() -> None:
    assert refusal_of(TokenIssuer().token()).refusal is Refusal.BAD_SIGNATURE


def test_a_key_that_is_not_published_is_refused() -> None:
    assert refusal_of(TokenIssuer("key-2").token()).refusal is Refusal.UNKNOWN_KEY


def test_claims_that_were_changed_after_signing_are_refused() -> None:
    header, _, signature = CLUSTER.token().split(".")
    changed = f"{header}.{segment(claims({'kubernetes.io/pod/uid': 'pod-1'}))}.{signature}"
    assert refusal_of(changed).refusal is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer ", "Basic eDp5", "Bearer " + "x" * 9000]
)
def test_a_call_without_a_token_is_refused(authorization: str | None) -> None:
    checker = TokenChecker(GivenKeys(CLUSTER), AUDIENCE, time.time)
    with pytest.raises(RefusedError) as caught:
        asyncio.run(checker.check(authorization))
    assert caught.value.refusal in (Refusal.NO_TOKEN, Refusal.NOT_A_TOKEN)


@pytest.mark.parametrize(
    "header", ["[" * 6000, segment([]), segment({"alg": "ES256"}), segment({"kid": 5}), "é", "%%"]
)
def test_a_header_that_is_none_is_refused(header: str) -> None:
    # Also one so deeply nested that a parser gives up, within the length of a token.
    encoded = base64.urlsafe_b64encode(header.encode()).decode().rstrip("=")
    for text in (header, encoded):
        assert refusal_of(f"{text}.x.y").refusal in (Refusal.NOT_A_TOKEN, Refusal.UNKNOWN_KEY)


def test_while_the_cluster_s_keys_cannot_be_read_the_caller_is_told_to_try_again() -> None:
    checker = TokenChecker(NoKeys(), AUDIENCE, time.time)
    with pytest.raises(RefusedError, match="try again") as caught:
        asyncio.run(checker.check(f"Bearer {CLUSTER.token()}"))
    assert caught.value.refusal is Refusal.KEYS_UNAVAILABLE


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_no_text_raises_anything_but_a_refusal(text: str) -> None:
    refusal_of(f"x{text}")


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.sampled_from(
        ["exp", "nbf", "iat", "aud", "iss", "sub", "jti", "kubernetes.io", "kubernetes.io/pod"]
    ),
)
def test_no_value_of_a_signed_claim_raises_anything_but_a_refusal(value: object, path: str) -> None:
    token = CLUSTER.token({path: value})
    with contextlib.suppress(RefusedError):
        check(token)


@pytest.mark.parametrize("payload", [b"", b"x", b"[]", b"5", b"\xff", b"[" * 5000])
def test_a_signed_text_that_holds_no_claims_is_refused(payload: bytes) -> None:
    assert refusal_of(CLUSTER.signed(payload)).refusal is Refusal.NOT_A_TOKEN
