import pytest

from gcws_search.index.contracts.errors import InvalidPayload
from gcws_search.index.payload.encoding import decode_payload, encode_payload


def test_a_payload_is_kept_as_compact_json() -> None:
    payload = {"name": "bär", "tags": [1, 2.5, None, True], "deep": {"er": {}}}
    encoded = encode_payload(payload)
    assert encoded == '{"name":"bär","tags":[1,2.5,null,true],"deep":{"er":{}}}'.encode()
    assert decode_payload(encoded) == payload


def test_no_payload_stays_none() -> None:
    assert encode_payload(None) is None
    assert decode_payload(None) is None


@pytest.mark.parametrize("bad", [[], "text", 1, True, {1: 2}, {"a": 2**70}, {"a": object()}])
def test_what_is_no_json_object_is_refused(bad: object) -> None:
    with pytest.raises(InvalidPayload) as caught:
        encode_payload(bad, loc=("items", 3, "payload"))
    assert caught.value.loc == ("items", 3, "payload")
    assert caught.value.expected == "a JSON object"
