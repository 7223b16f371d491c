"""Models of transformers and timm at small sizes, with random weights: `ZOO[name]()` gives a torch
module and its keyword arguments.

The classes are the libraries' own; only the configurations say small. Caches of keys are off.
"""

import importlib
import inspect
import sys
from collections.abc import Callable

ZOO: dict[str, Callable] = {}
TOKENS = (2, 16)
VOCABULARY = 96

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
EXPERTS = {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
IMAGE = {**SMALL, "image_size": 32, "patch_size": 8, "num_channels": 3}
for _name in ("vocab_size", "max_position_embeddings", "pad_token_id"):
    IMAGE.pop(_name)
SOUND = {
    **SMALL,
    "conv_dim": (16, 16),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "apply_spec_augment": False,
}
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4],
        "window_size": 4}  # fmt: skip

# name: its class, its configuration's class, what makes it small, its inputs
TRANSFORMERS: dict[str, tuple] = {
    # encoders of text
    "bert": ("BertForMaskedLM", "BertConfig", SMALL, "text"),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", SMALL, "text"),
    "distilbert": (
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        "text",
    ),
    "albert": ("AlbertModel", "AlbertConfig", {**SMALL, "embedding_size": 16}, "text"),
    "electra": ("ElectraModel", "ElectraConfig", {**SMALL, "embedding_size": 16}, "text"),
    "mpnet": ("MPNetModel", "MPNetConfig", SMALL, "text"),
    "deberta-v2": (
        "DebertaV2Model", "DebertaV2Config",
        {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, "text",
    ),
    "modernbert": ("ModernBertModel", "ModernBertConfig", SMALL, "text"),
    "fnet": ("FNetModel", "FNetConfig", SMALL, "text"),
    "squeezebert": (
        "SqueezeBertModel", "SqueezeBertConfig", {**SMALL, "embedding_size": 32}, "text",
    ),
    "convbert": ("ConvBertModel", "ConvBertConfig", {**SMALL, "embedding_size": 32}, "text"),
    "nystromformer": ("NystromformerModel", "NystromformerConfig",
                      {**SMALL, "num_landmarks": 16, "segment_means_seq_len": 16}, "text"),
    "funnel": (
        "FunnelModel", "FunnelConfig",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64,
         "block_sizes": [1, 1]}, "text",
    ),
    # decoders of text
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT, "text"),
    "gpt-neo": (
        "GPTNeoForCausalLM", "GPTNeoConfig",
        {**SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        "text",
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL, "text"),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**GPT, "rotary_dim": 4}, "text"),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", {**GPT, "rotary_dim": 4}, "text"),
    "opt": (
        "OPTForCausalLM", "OPTConfig", {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}, "text",
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", {**SMALL, "n_layer": 2, "n_head": 4}, "text"),
    "falcon": ("FalconForCausalLM", "FalconConfig", SMALL, "text"),
    "mpt": ("MptForCausalLM", "MptConfig",
            {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4}, "text"),
    "biogpt": ("BioGptForCausalLM", "BioGptConfig", SMALL, "text"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, "text"),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 8}, "text"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, "text"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 8}, "text"),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 8}, "text"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               {**GROUPED, "head_dim": 8, "sliding_window": 8}, "text"),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig",
               {**GROUPED, "head_dim": 8, "sliding_window": 8}, "text"),
    "phi": ("PhiForCausalLM", "PhiConfig", SMALL, "text"),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED, "text"),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", GROUPED, "text"),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", GROUPED, "text"),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED, "text"),
    "cohere": ("CohereForCausalLM", "CohereConfig", GROUPED, "text"),
    "granite": ("GraniteForCausalLM", "GraniteConfig", GROUPED, "text"),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", GROUPED, "text"),
    "nemotron": ("NemotronForCausalLM", "NemotronConfig", GROUPED, "text"),
    "persimmon": ("PersimmonForCausalLM", "PersimmonConfig", SMALL, "text"),
    "glm": ("GlmForCausalLM", "GlmConfig", {**GROUPED, "head_dim": 8}, "text"),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig",
                {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}, "text"),
    "qwen2-moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig",
                  {**EXPERTS, "shared_expert_intermediate_size": 32}, "text"),
    "olmoe": ("OlmoeForCausalLM", "OlmoeConfig", EXPERTS, "text"),
    "mamba": ("MambaForCausalLM", "MambaConfig", {**SMALL, "state_size": 4}, "text"),
    # from text to text
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
         "num_heads": 4}, "two texts",
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ, "two texts"),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", SEQ2SEQ, "two texts"),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", SEQ2SEQ, "two texts"),
    "marian": ("MarianMTModel", "MarianConfig", {**SEQ2SEQ, "decoder_start_token_id": 1},
               "two texts"),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config", SEQ2SEQ, "two texts"),
    # sound
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32,
         "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}, "sound and text",
    ),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", SOUND, "wave"),
    "hubert": ("HubertModel", "HubertConfig", SOUND, "wave"),
    "ast": ("ASTModel", "ASTConfig",
            {**IMAGE, "max_length": 32, "num_mel_bins": 16, "patch_size": 8, "frequency_stride": 8,
             "time_stride": 8}, "spectrum"),
    # images
    "vit": ("ViTModel", "ViTConfig", IMAGE, "image"),
    "deit": ("DeiTModel", "DeiTConfig", IMAGE, "image"),
    "beit": ("BeitModel", "BeitConfig", IMAGE, "image"),
    "dinov2": ("Dinov2Model", "Dinov2Config", IMAGE, "image"),
    "swin": ("SwinModel", "SwinConfig", SWIN, "image"),
    "swinv2": ("Swinv2Model", "Swinv2Config", SWIN, "image"),
    "convnext": ("ConvNextModel", "ConvNextConfig",
                 {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, "image"),
    "resnet": ("ResNetModel", "ResNetConfig",
               {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1]}, "image"),
    "regnet": ("RegNetModel", "RegNetConfig",
               {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1],
                "groups_width": 8}, "image"),
    "mobilenet-v2": ("MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.25}, "image"),
    "segformer": (
        "SegformerModel", "SegformerConfig",
        {"depths": [1, 1], "sr_ratios": [4, 1], "hidden_sizes": [8, 16], "num_encoder_blocks": 2,
         "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2],
         "mlp_ratios": [2, 2]}, "image",
    ),
    "poolformer": (
        "PoolFormerModel", "PoolFormerConfig",
        {"depths": [1, 1], "hidden_sizes": [8, 16], "num_encoder_blocks": 2, "patch_sizes": [7, 3],
         "strides": [4, 2], "padding": [2, 1]}, "image",
    ),
    "clip": ("CLIPModel", "CLIPConfig",
             {"text_config": SMALL, "vision_config": IMAGE, "projection_dim": 16},
             "image and text"),
    "siglip": ("SiglipModel", "SiglipConfig", {"text_config": SMALL, "vision_config": IMAGE},
               "image and text"),
}  # fmt: skip


def transformers_model(name: str, model: str, config: str, small: dict, inputs: str) -> Callable:
    def make():
        import torch

        declare_torchvision()
        import transformers

        configuration = getattr(transformers, config)(**small)
        if hasattr(configuration, "use_cache"):
            configuration.use_cache = False
        torch.manual_seed(0)
        module = getattr(transformers, model)(configuration)
        ids = torch.randint(3, VOCABULARY, TOKENS)
        image = torch.randn(2, 3, 32, 32)
        return module, {
            "text": {"input_ids": ids},
            "two texts": {"input_ids": ids, "decoder_input_ids": ids[:, :8]},
            "sound and text": {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids},
            "wave": {"input_values": torch.randn(2, 640)},
            "spectrum": {"input_values": torch.randn(2, 32, 16)},
            "image": {"pixel_values": image},
            "image and text": {"pixel_values": image, "input_ids": ids},
        }[inputs]

    return make


for _name, _row in TRANSFORMERS.items():
    ZOO[f"transformers/{_name}"] = transformers_model(_name, *_row)

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
BLOCKS = {"layers": (1, 1, 1, 1)}

# a model of each of timm's families: what makes it small, and the images' side
TIMM: dict[str, tuple[dict, int]] = {
    "beit_base_patch16_224": (VIT, 32),
    "eca_botnext26ts_256": ({"img_size": 64}, 64),
    "test_byobnet": ({}, 64),
    "cait_xxs24_224": (VIT, 32),
    "coat_lite_tiny": ({"img_size": 64, "serial_depths": (1, 1, 1, 1)}, 64),
    "convit_tiny": ({**VIT, "local_up_to_layer": 1}, 32),
    "convmixer:ConvMixer": ({"dim": 32, "depth": 2, "kernel_size": 7, "patch_size": 7}, 56),
    "test_convnext": ({}, 64),
    "crossvit_9_240": ({}, 240),
    "cs3darknet_s": ({}, 64),
    "davit_tiny": ({"depths": (1, 1, 1, 1), "embed_dims": (16, 32, 48, 64),
                    "num_heads": (2, 2, 3, 4)}, 64),
    "deit_tiny_distilled_patch16_224": (VIT, 32),
    "densenet121": ({"block_config": (2, 2, 2, 2), "growth_rate": 8}, 64),
    "dla46_c": ({}, 64),
    "dpn48b": ({"k_sec": (1, 1, 1, 1)}, 64),
    "edgenext_xx_small": ({"depths": (2, 2, 2, 2)}, 64),
    "efficientformer_l1": ({}, 224),
    "test_efficientnet": ({}, 64),
    "efficientvit_b0": ({}, 64),
    "efficientvit_m0": ({"img_size": 64}, 64),
    "eva02_tiny_patch14_224": ({**VIT, "num_heads": 2}, 32),
    "fasternet_t0": ({"depths": (1, 1, 1, 1)}, 64),
    "fastvit_t8": ({"layers": (1, 1, 1, 1)}, 64),
    "focalnet:FocalNet": ({"depths": (1, 1, 1, 1), "embed_dim": 16}, 64),
    "gcvit:GlobalContextVit": ({"depths": (1, 1, 1, 1), "img_size": 64,
                                "embed_dim": 16, "num_heads": (1, 2, 4, 8)}, 64),
    "ghostnet_050": ({}, 64),
    "hgnet_tiny": ({}, 64),
    "hiera_tiny_224": ({"img_size": 64, "stages": (1, 1, 1, 1), "embed_dim": 16}, 64),
    "hrnet_w18_small": ({}, 64),
    "inception_next_atto": ({"depths": (1, 1, 1, 1)}, 64),
    "inception_v3": ({}, 96),
    "levit_128s": ({"img_size": 64}, 64),
    "mambaout_femto": ({"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}, 64),
    "maxvit_rmlp_pico_rw_256": ({"img_size": 64, "depths": (1, 1, 1, 1)}, 64),
    "metaformer:MetaFormer": ({"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}, 64),
    "mlp_mixer:MlpMixer": ({"img_size": 64, "embed_dim": 32, "num_blocks": 2}, 64),
    "mobilenetv3_small_050": ({}, 64),
    "mobilevit_xxs": ({}, 64),
    "mvitv2_tiny": ({"img_size": 64}, 64),
    "nest:Nest": ({"img_size": 64, "depths": (1, 1, 1), "embed_dims": (16, 32, 48),
                   "num_heads": (1, 2, 3)}, 64),
    "test_nfnet": ({}, 64),
    "pit_ti_224": ({"img_size": 64, "depth": (1, 1, 1)}, 64),
    "pvt_v2_b0": ({"depths": (1, 1, 1, 1)}, 64),
    "regnetx_002": ({}, 64),
    "repvit_m0_9": ({}, 64),
    "res2net50_14w_8s": (BLOCKS, 64),
    "resnest14d": ({}, 64),
    "test_resnet": ({}, 64),
    "resnet18": (BLOCKS, 64),
    "resnetv2_50": (BLOCKS, 64),
    "rexnet_100": ({"depth_mult": 0.4}, 64),
    "selecsls42": ({}, 64),
    "seresnet18": (BLOCKS, 64),
    "sequencer2d_s": ({"img_size": 64, "layers": (1, 1, 1, 1)}, 64),
    "skresnet18": (BLOCKS, 64),
    "swin_tiny_patch4_window7_224": (
        {"img_size": 56, "depths": (1, 2, 1, 1), "embed_dim": 24, "num_heads": (1, 2, 3, 6)}, 56),
    "swinv2_tiny_window8_256": (
        {"img_size": 64, "depths": (1, 2, 1, 1), "embed_dim": 24, "num_heads": (1, 2, 3, 6)}, 64),
    "tiny_vit_5m_224": ({"depths": (1, 1, 1, 1)}, 224),
    "tnt_s_patch16_224": ({"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads_outer": 2}, 32),
    "tresnet_m": ({"layers": (1, 1, 1, 1)}, 64),
    "twins_svt_small": ({"img_size": 64, "depths": (1, 1, 1, 1)}, 64),
    "vgg:VGG": ({"cfg": [8, "M", 16, "M", 32, 32, "M"]}, 64),
    "visformer_tiny": ({"img_size": 64, "depth": (1, 1, 1)}, 64),
    "test_vit": ({"img_size": 64}, 64),
    "vit_relpos_small_patch16_224": (VIT, 32),
    "volo:VOLO": ({"img_size": 64, "layers": (1, 1, 1, 1), "embed_dims": (16, 32, 32, 32),
                   "num_heads": (2, 4, 4, 4)}, 64),
    "ese_vovnet19b_dw": ({}, 64),
    "xception41": ({}, 64),
    "xcit_nano_12_p16_224": ({"img_size": 64, "depth": 2}, 64),
}  # fmt: skip


def timm_model(name: str, small: dict, side: int) -> Callable:
    def make():
        import torch

        declare_torchvision()
        import timm

        torch.manual_seed(0)
        family, _, cls = name.partition(":")
        if cls:  # its entry points fix what makes it small
            models = importlib.import_module(f"timm.models.{family}")
            module = getattr(models, cls)(num_classes=10, **small)
        else:
            module = timm.create_model(name, num_classes=10, **small)
        first = next(iter(inspect.signature(module.forward).parameters))
        return module, {first: torch.randn(2, 3, side, side)}

    return make


def declare_torchvision() -> None:
    """torchvision's operators need the CUDA libraries that its wheel was built with; where those
    are absent, the two names that its Python half asks torch for are declared."""
    import torch

    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        for name in [n for n in sys.modules if n.startswith("torchvision")]:
            del sys.modules[name]
        LIBRARY.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            LIBRARY[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


LIBRARY: list = []

for _name, (_small, _side) in TIMM.items():
    ZOO[f"timm/{_name}"] = timm_model(_name, _small, _side)
