"""Translates ``sasl.jaas.config`` to librdkafka's properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_eos.errors import invalid_option, unsupported_option
from spark_eos.kafka.config.tokens import extensions, unsecured_claims
from spark_eos.kafka.config.values import boolean

_VALUE = r"\"(?:\\.|[^\"\\\r\n])*+\"|'(?:\\.|[^'\\\r\n])*+'|[^\s;\"']++"
_OPTION = re.compile(rf"([\w.$-]++)\s*+=\s*+({_VALUE})")
_LOGIN = re.compile(
    rf"\s*+([\w.$-]++)\s++(?i:required|requisite|sufficient|optional)((?:\s*+(?<![\w.$-]){_OPTION.pattern})*+)\s*+;\s*+"
)
#: Of Java's StreamTokenizer.
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

#: Options of OAuthBearerLoginModule and of AWS's handler, with the names used here.
_CREDENTIALS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "ssl.truststore.certificates": "https.ca.pem",
}
_AWS = {
    "awsProfileName": "aws.profile",
    "awsRoleArn": "aws.role.arn",
    "awsRoleSessionName": "aws.role.session.name",
    "awsStsRegion": "aws.sts.region",
}
_TICKETS = {
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
}
_IGNORED_OF_KERBEROS = {
    *(
        "useKeyTab",
        "useTicketCache",
        "storeKey",
        "renewTGT",
        "doNotPrompt",
        "refreshKrb5Config",
        "isInitiator",
        "debug",
    ),
    "client",
}
_IGNORED_OF_AWS = {"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
#: Claims of unsigned tokens that librdkafka's ``sasl.oauthbearer.config`` also has.
_CLAIMS = {
    "unsecuredLoginPrincipalClaimName": "principalClaimName",
    "unsecuredLoginScopeClaimName": "scopeClaimName",
    "unsecuredLoginLifetimeSeconds": "lifeSeconds",
}


@dataclass(frozen=True)
class Login:
    """A login module: its class name without the package, and its options, which may be secrets."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> Login:
    """Return the one login module of a text, from its first character to its last, as Java reads it. Raises OptionError
    (EOS_OPTION_INVALID), without anything of the text."""
    match = _LOGIN.fullmatch(text)
    if match is None:
        raise invalid_option(
            "kafka.sasl.jaas.config",
            "not one login module with its options",
            'MODULE required name="value" name="value"; with the semicolon, and one module alone',
        )
    options = {key: _unquoted(value) for key, value in _OPTION.findall(match[2])}
    return Login(match[1].rpartition(".")[2], options)


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return _ESCAPE.sub(lambda match: _escaped(match[1]), value[1:-1])


def _escaped(text: str) -> str:
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPED.get(text, text)


def login_properties(login: Login) -> dict[str, str]:
    """Return the properties of the login module. Raises OptionError (EOS_OPTION_UNSUPPORTED), without the value of any
    option."""
    if login.module in ("PlainLoginModule", "ScramLoginModule"):
        return _password(login)
    if login.module == "OAuthBearerLoginModule":
        return _bearer(login)
    if login.module == "IAMLoginModule":
        return {"sasl.mechanism": "AWS_MSK_IAM"} | _renamed(login, _AWS, _IGNORED_OF_AWS)
    if login.module == "Krb5LoginModule":
        return _kerberos(login)
    raise unsupported_option(
        "kafka.sasl.jaas.config",
        f"a login by the module '{login.module}'",
        (
            "PlainLoginModule or ScramLoginModule with username and password, OAuthBearerLoginModule, or "
            "IAMLoginModule; or kafka.sasl.mechanism with kafka.sasl.username and kafka.sasl.password"
        ),
    )


def _password(login: Login) -> dict[str, str]:
    if boolean(login.options, "tokenauth", False):
        raise unsupported_option(
            "kafka.sasl.jaas.config", "a login by a delegation token", "the user's own password, or certificates"
        )
    if not {"username", "password"} <= login.options.keys():
        raise unsupported_option(
            "kafka.sasl.jaas.config", f"a login by {login.module} without both username and password", "both"
        )
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


def _kerberos(login: Login) -> dict[str, str]:
    """Return the properties of a Kerberos login. Java requires options that say where credentials are; here, the keytab
    is used if there is one, else the credentials that Kerberos finds (KRB5CCNAME, KRB5_CLIENT_KTNAME)."""
    if "ticketCache" in login.options:
        raise unsupported_option(
            "kafka.sasl.jaas.config",
            "a login with a ticket cache",
            "KRB5CCNAME in the environment of driver and executors, which sets the ticket cache",
        )
    return _renamed(login, _TICKETS, _IGNORED_OF_KERBEROS)


def _bearer(login: Login) -> dict[str, str]:
    unsecured = {key: value for key, value in login.options.items() if key.startswith("unsecuredLogin")}
    if unsecured:
        return _unsecured(unsecured)
    ignored = {key for key in login.options if key.startswith("extension_")} | _IGNORED_OF_AWS
    aws = login.options.keys() & _AWS.keys()
    known = _AWS if aws else _CREDENTIALS
    return _renamed(login, known, ignored) | _extensions(login.options, "extension_")


def _unsecured(options: dict[str, str]) -> dict[str, str]:
    """Return the properties for unsecured tokens, with the claims that brokers look at: a string claim is the
    principal, a list claim its scopes."""
    name = options.get("unsecuredLoginPrincipalClaimName", "sub")
    scope = options.get("unsecuredLoginScopeClaimName", "scope")
    claims = {"principal": options.get(f"unsecuredLoginStringClaim_{name}", "")}
    claims |= {known: options[key] for key, known in _CLAIMS.items() if key in options}
    listed = options.get(f"unsecuredLoginListClaim_{scope}")
    if listed:  # the first character is the separator
        claims["scope"] = listed[1:].replace(listed[0], ",")
        _check_whole({"scope": listed[1:].split(listed[0])}, {"scope": claims["scope"].split(",")})
    config = {"sasl.oauthbearer.config": " ".join(f"{key}={value}" for key, value in claims.items())}
    _check_whole(claims, unsecured_claims(config))
    return {"enable.sasl.oauthbearer.unsecure.jwt": "true"} | config | _extensions(options, "unsecuredLoginExtension_")


def _extensions(options: dict[str, str], prefix: str) -> dict[str, str]:
    given = {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
    result = {"sasl.oauthbearer.extensions": ",".join(f"{key}={value}" for key, value in given.items())}
    _check_whole(given, extensions(result))
    return result


def _check_whole(given: Mapping[str, object], read: Mapping[str, object]) -> None:
    """Raise OptionError if values are not read as they were given, as they contain separators."""
    cut = [name for name, value in given.items() if read.get(name) != value]
    if cut:
        raise unsupported_option(
            "kafka.sasl.jaas.config", f"a login with separators in {', '.join(cut)}", "values without blanks and commas"
        )


def _renamed(login: Login, names: dict[str, str], ignored: set[str]) -> dict[str, str]:
    unknown = login.options.keys() - names.keys() - ignored
    if unknown:
        raise unsupported_option(
            "kafka.sasl.jaas.config",
            f"a login by {login.module} with the options {', '.join(sorted(unknown))}",
            f"only {', '.join(sorted(names))}",
        )
    return {name: login.options[key] for key, name in names.items() if key in login.options}
