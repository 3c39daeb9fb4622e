"""No secret leaves a reader."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engines._reading.redact import redact
from bot.engines.sglang.log import SglangReader

SECRET = "Zq7Zq7Zq7Zq7"
secrets = st.text(string.ascii_letters + string.digits, min_size=8, max_size=40).map(lambda tail: f"Zq{tail}")
around = st.text(alphabet=string.ascii_letters + " .,:;()[]{}'\"=/-\n", max_size=30)

PLACES = [
    "--api-key {}",
    "--api-key={}",
    "--admin-api-key {} --port 30000",
    "--hf-token={}",
    "--speculative-token-api-key '{}'",
    "api_key='{}'",
    "'api_key': '{}'",
    "'api_key': ['{}']",
    '"admin_api_key": "{}"',
    "server_args=ServerArgs(model_path='/m', api_key='{}', port=1)",
    "HF_TOKEN={} vllm serve",
    "HUGGING_FACE_HUB_TOKEN={}",
    "SLACK_BOT_TOKEN={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "OPENAI_API_KEY: {}",
    "password={}",
    "https://user:{}@host/path",
    "https://{}@host/path",
    "http://host/x?token={}&a=1",
    "http://host/x?a=1&api_key={}",
    "Authorization: Bearer {}",
    "curl -H 'Authorization: Bearer {}'",
    "token='{}'",
]
SHAPES = [
    "hf_abcdefghijkl1234",
    "sk-abcdefghijkl1234",
    "sk-proj-abc_def-ghijkl",
    "xoxb-123456-abcdef",
    "xapp-1-ABCDEF-123",
    "ghp_abcdefghijklmnop1234",
    "AKIAABCDEFGHIJKLMNOP",
    "nvapi-abcdefghijklmnop",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_goes_from_where_secrets_stand(place):
    redacted = redact(place.format(SECRET))
    assert SECRET not in redacted
    assert "***" in redacted


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_is_known_by_its_shape_wherever_it_stands(shape):
    assert redact(f"request by {shape} refused") == "request by *** refused"


@pytest.mark.parametrize("place", PLACES)
@given(before=around, secret=secrets, after=around)
def test_no_surrounding_saves_a_secret(place, before, secret, after):
    assert secret not in redact(f"{before} {place.format(secret)} {after}")


@given(text=st.text(max_size=200))
def test_redacting_twice_changes_nothing(text):
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("place", PLACES)
def test_redacting_a_secret_twice_changes_nothing(place):
    once = redact(place.format(SECRET))
    assert redact(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "#new-token: 8192, #cached-token: 12, token usage: 0.31",
        "max_total_num_tokens=512880, chunked_prefill_size=8192",
        "api_key=None, admin_api_key=None",
        "KeyError: 'model.layers.0.weight'",
        "tokenizer_path='/m/a', tokenizer_mode='auto'",
        "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len",
        "https://huggingface.co/org/model/resolve/main/config.json",
        "The server is fired up and ready to roll!",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text


def test_a_repr_of_the_arguments_keeps_everything_else():
    text = "server_args=ServerArgs(model_path='/m/a', api_key='hush', admin_api_key=None, port=30000)"
    assert redact(text) == "server_args=ServerArgs(model_path='/m/a', api_key='***', admin_api_key=None, port=30000)"


def test_a_decisive_line_comes_out_redacted():
    reader = SglangReader()
    reader.feed(b"launch_server.py: error: unrecognized arguments: --fast --api-key hushhush\n")
    assert reader.diagnosis().decisive_line == "launch_server.py: error: unrecognized arguments: --fast --api-key ***"


@pytest.mark.parametrize(
    "path", ["sglang/srt/utils/hf_transformers/config.py", "hf_transformers_utils", "self.hf_processor", "hf_transfer="]
)
def test_a_module_that_is_named_like_a_key_stays(path):
    assert (
        redact(f'  File "/venv/{path}", line 379, in get_config') == f'  File "/venv/{path}", line 379, in get_config'
    )
