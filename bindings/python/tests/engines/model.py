"""Make a tiny model of random weights, with a tokenizer trained here: model.py FOLDER [KIND].

KIND: llama (the default), or hybrid, a Gemma 3 whose layers have full attention and a sliding window in turn.
Real weights, not vLLM's dummy ones: outputs then depend on the KV cache, so that wrong blocks change them.
"""

import json
import os
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 64
WINDOW = 200  # tokens of hybrid's sliding window
SHAPE = {"vocab_size": 1024, "hidden_size": HEADS * HEAD_DIM, "intermediate_size": 512, "num_hidden_layers": LAYERS,
         "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
         "max_position_embeddings": 4096, "bos_token_id": 0, "eos_token_id": 1, "initializer_range": 0.15,
         "tie_word_embeddings": False, "dtype": "bfloat16"}


def llama():
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


def hybrid():
    model = Gemma3ForCausalLM(Gemma3TextConfig(
        **{**SHAPE, "tie_word_embeddings": True}, sliding_window=WINDOW, query_pre_attn_scalar=HEAD_DIM,
        layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2)))
    model.model.embed_tokens.weight.data *= 0.05  # otherwise each token repeats the last one
    return model


def main(folder, kind="llama"):
    torch.manual_seed(0)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = []
    for module in (os, json):
        with open(module.__file__, encoding="utf-8") as source:
            texts.append(source.read())
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=1024, special_tokens=["<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.save_pretrained(folder)
    {"llama": llama, "hybrid": hybrid}[kind]().to(torch.bfloat16).save_pretrained(folder)


main(*sys.argv[1:])
