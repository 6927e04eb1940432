"""Checks what a rail sends with parsers and verifiers that are not ours. The program of scripts/setup --bank-formats runs it.

Usage: bank_formats.py keys FOLDER                        writes a private and a public key of each kind
       bank_formats.py xml < DOCUMENT                     validates a message of ISO 20022, prints its texts by path
       bank_formats.py jws KEY SIGNATURE < BODY           verifies a detached signature, prints its header
       bank_formats.py jwt KEY < TOKEN                    verifies a client assertion, prints its claims
       bank_formats.py http-signature KEY < REQUEST       verifies an HTTP message signature, prints what it covers
"""
import importlib.util
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def package(name):
    return Path(importlib.util.find_spec(name).origin).parent


def keys(folder):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    for name, key in [
        ("rsa", rsa.generate_private_key(65537, 2048)),
        ("p256", ec.generate_private_key(ec.SECP256R1())),
        ("p384", ec.generate_private_key(ec.SECP384R1())),
        ("ed25519", ed25519.Ed25519PrivateKey.generate()),
    ]:
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        Path(folder, f"{name}.pem").write_bytes(private)
        Path(folder, f"{name}.pub").write_bytes(public)


def xml():
    import xmlschema

    document = sys.stdin.buffer.read()
    root = ElementTree.fromstring(document)
    namespace = root.tag[1:].split("}")[0]
    message = namespace.rsplit(":", 1)[-1]
    schemas = [package("sepaxml") / "schemas", package("pacs008") / "templates" / message]
    schema = next(path for path in (folder / f"{message}.xsd" for folder in schemas) if path.exists())
    xmlschema.XMLSchema(schema).validate(root)
    texts = {}

    def walk(element, path):
        name = element.tag.split("}")[1]
        path = f"{path}/{name}" if path else name
        if not len(element):
            texts[path] = element.text or ""
        for attribute, value in element.attrib.items():
            texts[f"{path}@{attribute}"] = value
        for child in element:
            walk(child, path)

    walk(root[0], "")
    return {"message": message, "texts": texts}


def jws(key, signature):
    from jwcrypto import jwk
    from jwcrypto.jws import JWS

    token = JWS()
    token.allowed_algs = ["RS256", "PS256", "PS512", "ES256", "ES384", "EdDSA"]
    token.deserialize(signature)
    token.verify(jwk.JWK.from_pem(Path(key).read_bytes()), detached_payload=sys.stdin.buffer.read())
    return dict(token.jose_header)


def jwt(key):
    from jwcrypto import jwk
    from jwcrypto.jws import JWS

    token = JWS()
    token.allowed_algs = ["RS256", "PS256", "PS512", "ES256", "ES384", "EdDSA"]
    token.deserialize(sys.stdin.read(), jwk.JWK.from_pem(Path(key).read_bytes()))
    return {"header": dict(token.jose_header), "claims": json.loads(token.payload)}


class Request:
    """A request as it was on the wire, with the URL that the client had asked for."""

    def __init__(self, text):
        head, _, body = text.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.method, path, _ = lines[0].split(" ")
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        self.url = f"http://{self.headers['host']}{path}"
        self.body = body


def http_signature(key):
    import base64
    import hashlib

    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms

    class Keys(HTTPSignatureKeyResolver):
        def resolve_public_key(self, key_id):
            return load_pem_public_key(Path(key).read_bytes())

    request = Request(sys.stdin.buffer.read())
    named = {
        "rsa-v1_5-sha256": algorithms.RSA_V1_5_SHA256,
        "rsa-pss-sha512": algorithms.RSA_PSS_SHA512,
        "ecdsa-p256-sha256": algorithms.ECDSA_P256_SHA256,
        "ed25519": algorithms.ED25519,
    }
    algorithm = request.headers["signature-input"].split(';alg="')[1].split('"')[0]
    [result] = HTTPMessageVerifier(signature_algorithm=named[algorithm], key_resolver=Keys()).verify(request)
    if request.body:
        digest = base64.b64encode(hashlib.sha256(request.body).digest()).decode()
        assert request.headers["content-digest"] == f"sha-256=:{digest}:", "the digest is of another body"
    return {"covers": sorted(str(name).strip('"') for name in result.covered_components), "key": result.parameters["keyid"]}


command, *arguments = sys.argv[1:]
answer = {"keys": keys, "xml": xml, "jws": jws, "jwt": jwt, "http-signature": http_signature}[command](*arguments)
if answer is not None:
    print(json.dumps(answer))
