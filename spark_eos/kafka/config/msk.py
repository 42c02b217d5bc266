"""Tokens for Amazon MSK: addresses that AWS's own library signs with the credentials that it finds."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping

from spark_eos.errors import missing_option, stop

_SERVER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_SESSION = "spark-eos"


def region(settings: Mapping[str, str], servers: str) -> str:
    """Return the AWS region: from the option, the brokers' names or the environment. Raises OptionError, also if AWS's
    library is not installed."""
    if importlib.util.find_spec("aws_msk_iam_sasl_signer") is None:
        raise stop(
            "EOS_OPTION_UNSUPPORTED.package",
            option="kafka.sasl.mechanism",
            given="AWS_MSK_IAM",
            package="aws-msk-iam-sasl-signer-python",
            extra="aws",
        )
    named = _SERVER.search(servers)
    name = settings.get("aws.region") or (named[1] if named else None)
    name = name or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not name:
        raise missing_option(
            "kafka.aws.region",
            f"the AWS region of {servers} is not known",
            "the region, or set the environment variable AWS_REGION, on the driver and on the executors",
        )
    return name


def sign(settings: Mapping[str, str]) -> tuple[str, float]:
    """Return a token and its expiry, in seconds since 1970. Raises OSError."""
    from aws_msk_iam_sasl_signer.MSKAuthTokenProvider import (
        generate_auth_token_from_credentials_provider as sign_with,
    )
    from botocore.exceptions import BotoCoreError, ClientError

    where = settings["aws.region"]
    try:
        text, until_ms = sign_with(where, _credentials(settings))
    except (BotoCoreError, ClientError, ValueError) as error:  # also of an empty key, or of a time that is none
        raise OSError(f"no token for Amazon MSK in {where}: {error}") from None
    return str(text), until_ms / 1000


def _credentials(settings: Mapping[str, str]) -> object:
    """Return the credentials, in the form of AWS's library."""
    import boto3
    from botocore.credentials import CredentialProvider, Credentials

    def load() -> object:
        session = boto3.Session(profile_name=settings.get("aws.profile"))
        if "aws.role.arn" not in settings:
            granted = session.get_credentials()
            if granted is None:
                raise OSError("no AWS credentials were found (environment, profile, or role of this machine)")
            return granted
        client = session.client("sts", region_name=settings.get("aws.sts.region", settings["aws.region"]))
        name = settings.get("aws.role.session.name", _SESSION)
        given = client.assume_role(RoleArn=settings["aws.role.arn"], RoleSessionName=name)["Credentials"]
        return Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])

    return type("Provider", (CredentialProvider,), {"load": lambda self: load()})()
