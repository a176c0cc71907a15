"""Who speaks: a pod's service-account token, checked without asking the API server about it.

The token is made for our audience alone and bound to its pod: it names namespace, service account,
and the pod's name and uid (Kubernetes: TokenRequest with a bound object).
"""

import json
import math
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from pipelineserve_operator.attend.keys import Keys, KeysUnavailableError, SigningKey
from pipelineserve_operator.attend.refusals import Refusal, RefusedError

# Clocks of nodes differ by a little.
LEEWAY_S = 10.0

_SCHEME = "Bearer "
# A token with a pod and a node bound to it has about 1,300 characters.
_MAX_TOKEN_CHARS = 8192
_MAX_TEXT_CHARS = 253
_REQUIRED = ["exp", "nbf", "iat", "iss", "aud", "sub"]


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a token speaks for.

    Attributes:
        ends_at_s: when the token does, leeway included; seconds since 1970.
    """

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str
    ends_at_s: float


class TokenChecker:
    """Tells whose a token is.

    Args:
        keys: of the cluster.
        audience: that a token must be made for.
        unix_s: seconds since 1970.
    """

    def __init__(self, keys: Keys, audience: str, unix_s: Callable[[], float]) -> None:
        self._keys = keys
        self._audience = audience
        self._unix_s = unix_s

    async def check(self, authorization: str | None) -> PodIdentity:
        """The pod that speaks.

        Args:
            authorization: what the call carries under that name; None if nothing.

        Raises:
            RefusedError: names what is wrong with it.
        """
        token = _bearer_token(authorization)
        key = await self._key(token)
        claims = _verified(token, key, self._audience)
        ends_at_s = self._check_time(claims)
        return _identity(claims, ends_at_s)

    async def _key(self, token: str) -> SigningKey:
        header = _header(token)
        key_id, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(key_id, str) or len(key_id) > _MAX_TEXT_CHARS:
            raise RefusedError(Refusal.UNKNOWN_KEY, "token: expected a key's id, found none")
        try:
            key = await self._keys.find(key_id)
        except KeysUnavailableError as error:
            raise RefusedError(Refusal.KEYS_UNAVAILABLE, f"{error}; try again") from error
        if key is None:
            raise RefusedError(
                Refusal.UNKNOWN_KEY, "token: signed with a key that this cluster does not publish"
            )
        if algorithm != key.algorithm:
            raise RefusedError(
                Refusal.OTHER_ALGORITHM,
                f"token: expected it to be signed with {key.algorithm}, as its key is for",
            )
        return key

    def _check_time(self, claims: Mapping[str, Any]) -> float:
        """When the token ends, leeway included."""
        now_s = self._unix_s()
        ends_at_s = _moment(claims, "exp") + LEEWAY_S
        if now_s >= ends_at_s:
            raise RefusedError(Refusal.EXPIRED, "token: expired; show the pod's present one")
        if max(_moment(claims, "nbf"), _moment(claims, "iat")) > now_s + LEEWAY_S:
            raise RefusedError(
                Refusal.NOT_YET_VALID, "token: not valid yet; the nodes' clocks may differ"
            )
        return ends_at_s


def _bearer_token(authorization: str | None) -> str:
    if authorization is None:
        raise RefusedError(
            Refusal.NO_TOKEN, "expected `authorization: Bearer TOKEN` with the call, got none"
        )
    token = authorization.removeprefix(_SCHEME)
    if token == authorization or not token or len(token) > _MAX_TOKEN_CHARS:
        raise _not_a_token()
    return token


def _header(token: str) -> Mapping[str, Any]:
    """The token's own word about how it is signed: nothing of it is believed."""
    text = token.partition(".")[0]
    try:
        header = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        raise _not_a_token() from None
    if not isinstance(header, dict):
        raise _not_a_token()
    return header


def _verified(token: str, key: SigningKey, audience: str) -> Mapping[str, Any]:
    """The claims, if the signature is the key's; their times are not looked at yet."""
    try:
        return jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            audience=audience,
            issuer=key.issuer,
            options={
                "require": _REQUIRED,
                # Times are compared with the clock that is given, not with the process's.
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
        raise _refused(error, audience, key.issuer) from None


def _refused(error: Exception, audience: str, issuer: str) -> RefusedError:
    match error:
        case jwt.InvalidSignatureError():
            return RefusedError(Refusal.BAD_SIGNATURE, "token: its signature is not its key's")
        case jwt.MissingRequiredClaimError():
            return RefusedError(
                Refusal.MISSING_CLAIM, f"token: expected the claim {error.claim}, found none"
            )
        case jwt.InvalidAudienceError():
            return RefusedError(
                Refusal.OTHER_AUDIENCE, f"token: expected one for the audience {audience}"
            )
        case jwt.InvalidIssuerError():
            return RefusedError(Refusal.OTHER_ISSUER, f"token: expected one issued by {issuer}")
        case _:
            return _not_a_token()


def _identity(claims: Mapping[str, Any], ends_at_s: float) -> PodIdentity:
    bound = _inner(claims, "kubernetes.io", "kubernetes.io")
    account = _inner(bound, "serviceaccount", "kubernetes.io.serviceaccount")
    pod = _inner(bound, "pod", "kubernetes.io.pod")
    identity = PodIdentity(
        namespace=_text(bound, "namespace", "kubernetes.io.namespace"),
        service_account=_text(account, "name", "kubernetes.io.serviceaccount.name"),
        pod_name=_text(pod, "name", "kubernetes.io.pod.name"),
        pod_uid=_text(pod, "uid", "kubernetes.io.pod.uid"),
        ends_at_s=ends_at_s,
    )
    subject = f"system:serviceaccount:{identity.namespace}:{identity.service_account}"
    if claims["sub"] != subject:
        raise _missing("sub that names the service account of kubernetes.io")
    return identity


def _inner(claims: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    inner = claims.get(name)
    if not isinstance(inner, dict):
        raise _missing(path)
    return inner


def _text(claims: Mapping[str, Any], name: str, path: str) -> str:
    text = claims.get(name)
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_TEXT_CHARS:
        raise _missing(path)
    return text


def _moment(claims: Mapping[str, Any], name: str) -> float:
    moment = claims[name]
    if not isinstance(moment, int | float) or isinstance(moment, bool) or not _is_finite(moment):
        raise _missing(name)
    return float(moment)


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond every float
        return False


def _missing(path: str) -> RefusedError:
    return RefusedError(Refusal.MISSING_CLAIM, f"token: expected the claim {path}")


def _not_a_token() -> RefusedError:
    return RefusedError(Refusal.NOT_A_TOKEN, "token: expected a service-account token (a JWT)")
