#!/bin/sh
# Transformers in whole runs: what works for convolutions works for them, in one process and in several.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# Class token, positions, registers, layer scale and stochastic depth.
cat >vit.ini <<'END'
[input]
channels = 1
size = 8
[block:encoder]
norm1 = layernorm in
attn.qkv = linear norm1 units=72 per_pixel=yes init=truncated_normal
attn = attention attn.qkv heads=3
attn.proj = linear attn units=24 per_pixel=yes
ls1.gamma = scale attn.proj init=0.5 vector=yes
drop_path1 = drop_path ls1.gamma rate=0
add1 = add drop_path1 in
norm2 = layernorm add1
mlp.fc1 = linear norm2 units=48 per_pixel=yes
mlp.act = gelu mlp.fc1
mlp.drop = dropout mlp.act rate=0.1
mlp.fc2 = linear mlp.drop units=24 per_pixel=yes
add2 = add mlp.fc2 add1
[layers]
patch_embed.proj = conv input filters=24 kernel=2 stride=2
reg_token = prepend patch_embed.proj count=2
cls_token = prepend reg_token init=zero
pos_embed = position cls_token prefix=3 init=truncated_normal
blocks.0..3 = encoder pos_embed
token = token_pool blocks.3
norm = layernorm token
head = linear norm units=$classes
END

# Windows, shifted in every second block, of maps that need padding; merging, and response normalisation.
cat >swin.ini <<'END'
[input]
channels = 1
size = 8
[block:unit]
norm1 = layernorm in
padded = pad norm1 multiple=3
attn.qkv = linear padded units=$width*3 per_pixel=yes
attn = attention attn.qkv in heads=2 window=3 shift=$shift
attn.proj = linear attn units=$width per_pixel=yes
add1 = add attn.proj in
norm2 = layernorm add1
mlp.0 = linear norm2 units=$width*2 per_pixel=yes
mlp.1 = gelu mlp.0
mlp.2 = grn mlp.1
mlp.3 = linear mlp.2 units=$width per_pixel=yes
add2 = add mlp.3 add1
[layers]
patches = conv input filters=8 kernel=1
block0 = unit patches width=8 shift=0
block1 = unit block0 width=8 shift=1
merge = patch_merge block1
reduction = linear merge units=16 per_pixel=yes bias=no
block2 = unit reduction width=16 shift=0
block3 = unit block2 width=16 shift=1
pool = token_pool block3 mode=mean prefix=0
head = linear pool units=$classes
END
adam="-s optimizer.name=adamw -s optimizer.lr=0.005 -s augment.flip=0 -s augment.pad=0 -s model.drop_path=0.1"
vit="-s model.file=vit.ini $adam"
swin="-s model.file=swin.ini -s optimizer.name=adamw -s optimizer.lr=0.005 -s augment.flip=0 -s augment.pad=0"

# learns FOLDER OPTION...: the loss falls (from ln 10 as it begins), and there is a report. Sanitizers see two
# short epochs.
epochs=10 images=640 share=0.85
[ -z "${AMPTRAIN_SANITIZED-}" ] || epochs=2 images=128 share=1.5
learns() {
    folder=$1; shift
    rm -rf "$folder"
    train "$folder" -s train.epochs=$epochs -s data.limit=$images -s checkpoint.every=5 "$@" &&
        [ -s "$folder/report.html" ] &&
        sed -n 's/.*"train_loss":\([0-9.]*\).*/\1/p' "$folder/metrics.jsonl" |
        awk -v epochs=$epochs -v share=$share 'NR == 1 { first = $1 } { last = $1 }
            END { print first, last; exit !(NR == epochs && last < share * first) }'
}
for precision in fp32 bf16 fp16; do
    ok "a ViT learns in $precision" learns vit $vit -s amp.precision=$precision -s amp.init_scale=4096
    ok "a Swin learns in $precision" learns swin $swin -s amp.precision=$precision -s amp.init_scale=4096
done

# equals T G S K OPTION...: G ranks in pipelines of S stages, with K micro-batches each, are one rank of T.
equals() {
    all=$1 gpus=$2 count=$3 each=$4; shift 4
    rm -rf alone several
    train alone -s train.accumulate="$all" -s run.max_steps=5 "$@" &&
        train several -s train.accumulate=1 -s parallel.gpus="$gpus" -s parallel.stages="$count" \
            -s parallel.microbatches="$each" -s run.max_steps=5 "$@" && same alone several
}
ok "a ViT on two ranks" equals 2 2 1 1 $vit
ok "a ViT in two stages" equals 4 2 2 4 $vit
ok "a Swin on two ranks" equals 2 2 1 1 $swin
ok "a Swin in two stages" equals 4 2 2 4 $swin

# limited OPTION...: less memory than it takes is met by recomputation, to the bit.
limited() {
    rm -rf free limited
    train free -s run.max_steps=5 -s amp.precision=fp32 "$@" &&
        train limited -s run.max_steps=5 -s amp.precision=fp32 -s memory.strategy=recompute "$@" &&
        same free limited
}
ok "recomputation changes no bit of a ViT" limited $vit
ok "... nor of a Swin" limited $swin

resumes() {
    rm -rf whole parts
    train whole -s run.max_steps=9 "$@" && train parts -s run.max_steps=4 "$@" &&
        train parts -r -s run.max_steps=9 "$@" && same whole parts
}
ok "a ViT resumes exactly" resumes $vit -s train.ema=0.9
ok "... frozen but for its head, with a learning rate by block" resumes $vit \
    -s "train.freeze=patch_embed.*,cls_token,reg_token,pos_embed" -s optimizer.layer_decay=0.7 \
    -s optimizer.layer_decay_by=block

ok "profile names its layers" sh -c '"$AMPTRAIN" profile -c run.ini "$@" --json >out && cat out &&
    grep -q "\"name\":\"blocks.3.attn\",\"op\":\"attention\"" out && grep -q "\"op\":\"position\"" out' sh $vit
ok "plan forecasts it" sh -c '"$AMPTRAIN" plan -c run.ini "$@" >out && cat out' sh $vit
finish
