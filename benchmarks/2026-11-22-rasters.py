# LRU model of L2 for orders of cluster tiles: waves of 66 clusters that walk k in step; an entry is a panel's slice of depth 512.
import sys
from collections import OrderedDict
def gilbert(w,h):
    out=[]
    def sgn(x): return (x>0)-(x<0)
    def gen(x,y,ax,ay,bx,by):
        w=abs(ax+ay); h=abs(bx+by); dax,day=sgn(ax),sgn(ay); dbx,dby=sgn(bx),sgn(by)
        if h==1:
            for _ in range(w): out.append((x,y)); x+=dax; y+=day
            return
        if w==1:
            for _ in range(h): out.append((x,y)); x+=dbx; y+=dby
            return
        ax2,ay2=ax//2,ay//2; bx2,by2=bx//2,by//2
        w2=abs(ax2+ay2); h2=abs(bx2+by2)
        if 2*w>3*h:
            if w2%2 and w>2: ax2+=dax; ay2+=day
            gen(x,y,ax2,ay2,bx,by); gen(x+ax2,y+ay2,ax-ax2,ay-ay2,bx,by)
        else:
            if h2%2 and h>2: bx2+=dbx; by2+=dby
            gen(x,y,bx2,by2,ax2,ay2); gen(x+bx2,y+by2,ax,ay,bx-bx2,by-by2)
            gen(x+(ax-dax)+(bx2-dbx),y+(ay-day)+(by2-dby),-bx2,-by2,-(ax-ax2),-(ay-ay2))
    if w>=h: gen(0,0,w,0,0,h)
    else: gen(0,0,0,h,w,0)
    return out
def blocked(rows,cols,g,snake=False):
    out=[]
    for gi,r0 in enumerate(range(0,rows,g)):
        cs=range(cols) if not (snake and gi%2) else range(cols-1,-1,-1)
        for c in cs:
            for r in range(r0,min(r0+g,rows)): out.append((r,c))
    return out
def dram(order,tm,tn,k,l2,at_once=66,depth=512,alternate=False):
    lru=OrderedDict(); size=0; miss=0
    steps=k//depth
    for w in range(0,len(order),at_once):
        tiles=order[w:w+at_once]
        rs=sorted({r for r,c in tiles}); cs=sorted({c for r,c in tiles})
        ks=range(steps) if not(alternate and (w//at_once)%2) else range(steps-1,-1,-1)
        for s in ks:
            for key,b in [(('a',r,s),tm*depth*2) for r in rs]+[(('b',c,s),tn*depth*2) for c in cs]:
                if key in lru: lru.move_to_end(key)
                else:
                    miss+=b; lru[key]=b; size+=b
                    while size>l2: _,b2=lru.popitem(last=False); size-=b2
    return miss
for (m,n,k,tm,tn) in [(8192,8192,8192,256,200),(16384,16384,4096,256,200),(8192,57344,8192,256,208),(8192,8192,28672,256,200),(4096,4096,4096,256,128)]:
    rows=-(-m//tm); cols=-(-n//tn)
    for l2 in (25e6,40e6):
        res={g:dram(blocked(rows,cols,g),tm,tn,k,l2) for g in (4,5,6,7,8,10,12)}
        best=min(res,key=res.get)
        hil=dram([(y,x) for x,y in gilbert(cols,rows)],tm,tn,k,l2)
        alt=dram(blocked(rows,cols,7),tm,tn,k,l2,alternate=True)
        sn=dram(blocked(rows,cols,7,True),tm,tn,k,l2)
        print(f'{m}x{n}x{k} L2 {l2/1e6:.0f} MB: 7 rows {res[7]/1e9:.2f} GB, best of blocked {best} rows {res[best]/1e9:.2f}, Hilbert {hil/1e9:.2f}, k in turns {alt/1e9:.2f}, groups in turns {sn/1e9:.2f}, least {(m+n)*k*2/1e9:.2f}')
