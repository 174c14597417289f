"""Names of coordinates that a router reserves while it reads those of others."""

import numpy as np

from gcws_search import index as ix
from tests.support.service.client import Serve

URL = "/v1/collections/plants"


def test_names_of_items_under_way_outlast_a_look_at_the_database(serve: Serve) -> None:
    client = serve()
    assert client.put(URL, json={"dim": None}).status_code == 201
    collection = client.app.state.service.collection("plants")
    reserved = collection.names.reserve(["acid", "ester"])
    vector = collection.space.from_items([ix.SparseVector(np.array(reserved), np.ones(2))])
    collection.load_names()
    assert collection.names.reserve(["acid", "ester"]) == reserved
    write = collection.prepare(ix.ItemBatch(["a"], vector, [None]), "upsert")
    assert write.names == reserved
